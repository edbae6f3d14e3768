package selection

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/index"
)

// path finds the values of a field for a flag. They are the values that an index of the
// field would have.
type path struct {
	index.Index
	answers
}

func parsePath(flag, text string) (*path, error) {
	idx, err := index.Field(text)
	if err != nil {
		// The user did not name an index.
		return nil, errors.New(strings.TrimPrefix(err.Error(), "index: "))
	}
	return &path{Index: idx, answers: answers{flag: flag, noun: "the field"}}, nil
}

// name returns the path without the optional characters around it.
func (p *path) name() string { return p.Params }

// metadataField is the field of every object that its table row is made from.
const metadataField = "metadata"

// top returns the top-level field of an object that the path starts with, "" if that is
// not a plain name.
func (p *path) top() string {
	end := strings.IndexFunc(p.name()+".", func(r rune) bool { return !unicode.IsLetter(r) })
	if rest := p.name()[end:]; rest != "" && rest[0] != '.' && rest[0] != '[' || strings.HasPrefix(p.name()[end:], "..") {
		return ""
	}
	return p.name()[:end]
}

// values returns the values of an object, none if it lacks the field.
func (p *path) values(obj runtime.Object) ([]string, error) {
	values, err := p.Func(obj)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name(), cmp.Or(errors.Unwrap(err), err))
	}
	return values, nil
}

// valuesOf returns the values of an item's object, none if the path does not fit it. It
// is safe for concurrent use.
func (p *path) valuesOf(i source.Item, obj runtime.Object) []string {
	p.asked.Add(1)
	values, err := p.values(obj)
	switch {
	case err != nil:
		p.misfit(i, err)
		return nil
	case len(values) > 0:
		p.having.Add(1)
	}
	return values
}

// read does what valuesOf does. It returns no error.
func (p *path) read(i source.Item, obj runtime.Object) ([]string, error) {
	return p.valuesOf(i, obj), nil
}

// lacks returns the note that no object has the field.
func (p *path) lacks(objects int) string {
	return fmt.Sprintf("none of %d objects has the field %q that %s asks for", objects, p.name(), p.flag)
}

func (p *path) tops() []string  { return []string{p.top()} }
func (p *path) reads() []string { return []string{p.name()} }

// Requirement is one requirement of --field-selector.
type Requirement struct {
	*path
	equal bool
	value string // "" also matches no value, as in the API server
}

// ParseFieldSelector parses the value of --field-selector.
func ParseFieldSelector(text string) ([]Requirement, error) {
	selector, err := fields.ParseSelector(text)
	if err != nil {
		return nil, err
	}
	var out []Requirement
	for _, r := range selector.Requirements() {
		p, err := parsePath("--field-selector", r.Field)
		if err != nil {
			return nil, err
		}
		out = append(out, Requirement{p, r.Operator != selection.NotEquals, r.Value})
	}
	return out, nil
}

// onKey reports whether the key alone decides if an object matches.
func (r Requirement) onKey() bool {
	return r.name() == "metadata.name" || r.name() == "metadata.namespace"
}

// Excludes reports whether an object with that key cannot match.
func (r Requirement) Excludes(namespace, name string) bool {
	switch r.name() {
	case "metadata.name":
		return (name == r.value) != r.equal
	case "metadata.namespace":
		return (namespace == r.value) != r.equal
	}
	return false
}

// Matches is safe for concurrent use.
func (r Requirement) Matches(i source.Item, obj runtime.Object) bool {
	values := r.valuesOf(i, obj)
	has := slices.Contains(values, r.value) || r.value == "" && len(values) == 0
	return has == r.equal
}

// verdict also says that no object has the field, which is most likely a mistake.
func (r Requirement) verdict() (note string, err error) {
	note, err = r.path.verdict()
	if asked := r.asked.Load(); note == "" && err == nil && asked > 0 && r.having.Load() == 0 {
		note = r.lacks(int(asked))
	}
	return note, err
}

// changedAt returns the newest time in an object's metadata.
func changedAt(obj runtime.Object) (time.Time, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return time.Time{}, err
	}
	at := m.GetCreationTimestamp().Time
	for _, f := range m.GetManagedFields() {
		if f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	return at, nil
}

// sortValue is the value that an object is sorted by: nothing, a number or quantity, or a
// text.
type sortValue struct {
	known    bool
	quantity *resource.Quantity
	text     string
}

// sortValueOf returns the first value of the path, as kubectl does.
func sortValueOf(i source.Item, p *path, obj runtime.Object) sortValue {
	values := p.valuesOf(i, obj)
	if len(values) == 0 {
		return sortValue{}
	}
	v := sortValue{known: true, text: values[0]}
	if q, err := parseQuantity(v.text); err == nil {
		v.quantity = &q
	}
	return v
}

func (v sortValue) compare(w sortValue) int {
	order := func(v sortValue) int {
		switch {
		case !v.known:
			return 0
		case v.quantity != nil:
			return 1
		}
		return 2
	}
	if c := cmp.Compare(order(v), order(w)); c != 0 || !v.known {
		return c
	}
	if v.quantity != nil {
		return v.quantity.Cmp(*w.quantity)
	}
	return cmp.Compare(v.text, w.text)
}
