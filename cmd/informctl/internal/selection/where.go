package selection

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/runtime"
)

// Condition is an expression of --where. An object does not match if the expression fails
// for it, most often because it lacks a field. Failures are counted: an expression that
// fails for every object is most likely a mistake of the user.
type Condition struct {
	*expression

	// GoesOn means that an object for which the expression takes too many steps does not
	// match, as one that it has no answer for: it must not end a watch of others.
	GoesOn bool

	asked, lacking, failing atomic.Int64
	unknown                 atomic.Int64           // changes that need an unknown state
	missing                 atomic.Pointer[string] // a field that one of them lacks
	wrong                   atomic.Pointer[string] // an error of a failing object
}

// ParseCondition compiles an expression. others are names of variables beside object.
func ParseCondition(text string, now time.Time, others ...string) (*Condition, error) {
	e, err := compile(text, now, others...)
	if err != nil {
		return nil, err
	}
	if e.out != cel.BoolType && e.out != cel.DynType {
		return nil, fmt.Errorf("the expression is of type %s, and has to be a bool", e.out)
	}
	return &Condition{expression: e}, nil
}

// restart forgets all objects.
func (c *Condition) restart() {
	for _, n := range []*atomic.Int64{&c.asked, &c.lacking, &c.failing, &c.unknown} {
		n.Store(0)
	}
	c.missing.Store(nil)
	c.wrong.Store(nil)
}

// matches evaluates the expression. It is safe for concurrent use. Its error ends the
// command.
func (c *Condition) matches(obj runtime.Object) (bool, error) {
	return c.holds(map[string]any{objectVariable: celValue(obj)})
}

// State is a state of an object before or after a change.
type State struct {
	Object  runtime.Object // nil if there was none, or it is not known
	Unknown bool           // there was one, which is not known any more
}

func (s State) celValue() any {
	if s.Unknown {
		return types.NewUnknown(0, nil)
	}
	return celValue(s.Object)
}

// MatchesChange does what matches does for a change. A change does not match if the
// answer depends on a state that is not known.
func (c *Condition) MatchesChange(before, after State) (bool, error) {
	return c.holds(map[string]any{objectVariable: after.celValue(), OldVariable: before.celValue()})
}

func (c *Condition) holds(variables map[string]any) (bool, error) {
	c.asked.Add(1)
	out, err := c.eval(variables)
	if err == nil {
		switch answer := out.(type) {
		case types.Bool:
			return bool(answer), nil
		case *types.Unknown:
			c.unknown.Add(1)
			return false, nil
		}
		err = fmt.Errorf("the expression is of type %s, and has to be a bool", typeName(out))
	}
	if errors.Is(err, errCostly) && !c.GoesOn {
		return false, costly("--where")
	}
	c.fail(err)
	return false, nil
}

// fail records a failure.
func (c *Condition) fail(err error) {
	var lack *lackError
	if !errors.As(err, &lack) {
		c.failing.Add(1)
		text := err.Error()
		c.wrong.Store(&text)
		return
	}
	c.lacking.Add(1)
	if lack.field != "" {
		c.missing.Store(&lack.field)
	}
}

// verdict returns what a user should know after the last object. It returns an error if
// the expression failed for every object, and not only because fields are missing.
func (c *Condition) verdict() (note string, err error) {
	asked, lacking, failing := c.asked.Load()-c.unknown.Load(), c.lacking.Load(), c.failing.Load()
	missing, wrong := c.missing.Load(), c.wrong.Load()
	switch {
	case failing > 0 && lacking+failing == asked:
		return "", fmt.Errorf("--where has no answer for any of %d objects: %s", asked, *wrong)
	case failing > 0:
		return fmt.Sprintf("--where has no answer for %d of %d objects, which count as not matching: %s", failing, asked, *wrong), nil
	case missing != nil && lacking == asked:
		return fmt.Sprintf("none of %d objects has the field %q that --where asks for", asked, *missing), nil
	}
	return "", nil
}

// unanswered returns what a user should know of changes whose states are not known.
func (c *Condition) unanswered() (note string) {
	if n := c.unknown.Load(); n > 0 {
		return fmt.Sprintf("--where has no answer for %d of %d changes, which count as not matching: a state is not known any more", n, c.asked.Load())
	}
	return ""
}
