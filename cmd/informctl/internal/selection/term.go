package selection

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/cmd/informctl/internal/source"
)

// term finds the values of an object that --group-by groups by, or that an aggregate
// calculates from. It is a path, or an expression of the variable object.
type term interface {
	name() string // as it was written, in one line
	asks() string // the flag

	// read returns the values of an item's object, none if it has none. It is safe for
	// concurrent use. An error ends the command.
	read(i source.Item, obj runtime.Object) ([]string, error)

	// refuse counts an object with a value that is no number because of an error. all
	// means that it has no other value.
	refuse(i source.Item, all bool, err error)

	lacks(objects int) string          // the note that no object has a value
	verdict() (note string, err error) // what a user should know after the last object
	tops() []string                    // the top-level fields that it reads; "" is any
	reads() []string                   // the paths of the fields that it reads
}

// column is a term with the name of its column.
type column struct {
	term
	as string // "" if the user gave no name
}

// header returns the name of the column.
func (c column) header() string { return cmp.Or(c.as, c.name()) }

// parseColumn parses TERM, or TERM AS NAME.
func parseColumn(flag, text string, now time.Time) (c column, err error) {
	if at := asName.FindStringSubmatchIndex(withoutQuoted(text)); at != nil {
		if c.as = strings.TrimSpace(text[at[2]:]); !columnName.MatchString(c.as) {
			return c, fmt.Errorf("%q is no name for a column; behind AS write one word of letters, digits, - and _", c.as)
		}
		text = text[:at[0]]
	}
	c.term, err = parseTerm(flag, text, now)
	return c, err
}

// asName matches AS and the name behind it, which begins where its group does.
var asName = regexp.MustCompile(`(?is)(?:^|\s+)as(?:\s|$)().*`)

var columnName = regexp.MustCompile(`^[\pL\pN_-]+$`)

// parseTerm parses a path or an expression.
func parseTerm(flag, text string, now time.Time) (term, error) {
	if !namesObject.MatchString(withoutQuoted(text)) {
		return parsePath(flag, text)
	}
	e, err := compile(text, now)
	if err != nil {
		return nil, err
	}
	return &computed{expression: e, answers: answers{flag: flag, noun: "a value"}}, nil
}

// namesObject matches a text with the variable object. In a path, object is a field
// behind a dot or a part of a field's name.
var namesObject = regexp.MustCompile(`(^|[^\w.$/\\-])object\b`)

// quoted matches a text in quotes, with escaped characters.
var quoted = regexp.MustCompile(`(?s)"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'`)

// withoutQuoted returns a text of the same length with x for all that is in quotes.
func withoutQuoted(text string) string {
	return quoted.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("x", len(s)) })
}

// computed finds the values of an expression for a flag. Of a list each element is a
// value, as of a path with [*].
type computed struct {
	*expression
	answers

	missing atomic.Pointer[string] // a field that an object lacks
}

// name returns the expression in one line.
func (c *computed) name() string { return strings.Join(strings.Fields(c.text), " ") }

func (c *computed) read(i source.Item, obj runtime.Object) ([]string, error) {
	c.asked.Add(1)
	out, err := c.eval(map[string]any{objectVariable: celValue(obj)})
	var values []string
	if err == nil {
		values, err = textsOf(out)
	}
	var lack *lackError
	switch {
	case errors.Is(err, errCostly):
		return nil, costly(c.flag)
	case errors.As(err, &lack):
		if lack.field != "" {
			c.missing.Store(&lack.field)
		}
		return nil, nil
	case err != nil:
		c.misfit(i, fmt.Errorf("%s: %w", c.name(), err))
		return nil, nil
	case len(values) > 0:
		c.having.Add(1)
	}
	return values, nil
}

func (c *computed) lacks(objects int) string {
	if field := c.missing.Load(); field != nil {
		return fmt.Sprintf("none of %d objects has the field %q that %s asks for", objects, *field, c.flag)
	}
	return fmt.Sprintf("%s has no value for any of %d objects", c.flag, objects)
}

func (c *computed) tops() []string {
	if c.whole {
		return []string{""}
	}
	return c.fields
}

func (c *computed) reads() []string { return c.paths }

// textsOf returns the values that the result of an expression has. A result without any,
// because it is neither a scalar nor a list of scalars, is an error.
func textsOf(out ref.Val) (texts []string, err error) {
	if optional, is := out.(*types.Optional); is && optional.HasValue() {
		out = optional.GetValue()
	}
	elements := []ref.Val{out}
	if list, ok := out.(traits.Lister); ok {
		elements = nil
		for it := list.Iterator(); it.HasNext() == types.True; {
			elements = append(elements, it.Next())
		}
	}
	for _, v := range elements {
		text, ok := textOf(v)
		if !ok {
			err = fmt.Errorf("a value is of type %s, want a string, a number or a bool, or a list of these", typeName(v))
		}
		if text != "" {
			texts = append(texts, text)
		}
	}
	if len(texts) > 0 {
		return texts, nil
	}
	return nil, err
}

// textOf returns a scalar as a path has it, in its JSON form without quotes. It is "" for
// null and for an optional without a value. ok is false if it is no scalar.
func textOf(v ref.Val) (text string, ok bool) {
	switch v := v.(type) {
	case *types.Optional:
		if !v.HasValue() {
			return "", true
		}
		return textOf(v.GetValue())
	case types.Null:
		return "", true
	case types.Double:
		data, err := json.Marshal(float64(v))
		return string(data), err == nil // not of NaN
	case types.Bool, types.Int, types.Uint, types.String, types.Timestamp, types.Duration:
		s, ok := v.ConvertToType(types.StringType).(types.String)
		return string(s), ok
	}
	if s, ok := v.Value().(fmt.Stringer); ok { // such as a quantity or an IP
		return s.String(), true
	}
	return "", false
}
