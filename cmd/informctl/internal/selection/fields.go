package selection

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
// field would have. An object that the path does not fit has no value: such objects are
// counted, because a path that fits none is most likely a mistake of the user.
type path struct {
	index.Index
	flag string // such as --sort-by

	asked, having atomic.Int64 // objects, and those that have a value

	mu             sync.Mutex  // protects the fields below
	misfits, texts int         // objects that the path, or a number, does not fit
	first          source.Item // of these, in the order of output
	err            error       // of first; nil if there is none
}

func parsePath(flag, text string) (*path, error) {
	idx, err := index.Field(text)
	if err != nil {
		// The user did not name an index.
		return nil, errors.New(strings.TrimPrefix(err.Error(), "index: "))
	}
	return &path{Index: idx, flag: flag}, nil
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
		p.misfit(i, &p.misfits, err)
		return nil
	case len(values) > 0:
		p.having.Add(1)
	}
	return values
}

// misfit counts an object that has no value because of an error.
func (p *path) misfit(i source.Item, count *int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*count++
	if p.err == nil || source.CompareItems(i, p.first) < 0 {
		p.first, p.err = i, err
	}
}

// verdict returns what a user should know after the last object: how many objects count
// as ones without the field. It returns an error if the path fits none of them.
func (p *path) verdict() (note string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked, n := p.asked.Load(), int64(p.misfits+p.texts)
	switch {
	case n == 0:
		return "", nil
	case n == asked, p.texts > 0 && p.having.Load() == 0:
		return "", p.first.Wrap(fmt.Errorf("%s: %w", p.flag, p.err))
	}
	return fmt.Sprintf("%d of %d objects count as ones without the field that %s asks for: %s", n, asked, p.flag, p.err), nil
}

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
		note = fmt.Sprintf("none of %d objects has the field %q that --field-selector asks for", asked, r.name())
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
	if q, err := resource.ParseQuantity(v.text); err == nil {
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
