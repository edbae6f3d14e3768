package store

import "k8s.io/apimachinery/pkg/labels"

// Query says which entries Store.Select returns. An entry has to fit every field
// that is set; the zero value is all entries.
type Query struct {
	// Index and Value ask for what has Value in the index of that name.
	Index, Value string
	// Namespace "" is all namespaces, and objects that are in none.
	Namespace string
	// Selector is asked for its Requirements once, before anything is read; its
	// Matches is never called. nil is all.
	Selector labels.Selector
	// After and Limit ask for a part: keys after this one, and at most so many of
	// them. Limit 0 is all; fewer than a Limit means that there are no more.
	After string
	Limit int
}

// Matcher returns a Selector that selects what q.Selector does and is package
// labels' own, so that a backend may run it where no code of a caller may run.
func (q Query) Matcher() labels.Selector {
	if q.Selector == nil {
		return labels.Everything()
	}
	requirements, selectable := q.Selector.Requirements()
	if !selectable {
		return labels.Nothing()
	}
	return labels.NewSelector().Add(requirements...)
}

// Range returns the keys that the query can be about: those greater than after
// that begin with prefix. They are neighbours in key order.
func (q Query) Range() (after, prefix string) {
	if q.Namespace == "" {
		return q.After, ""
	}
	prefix = q.Namespace + "/"
	return max(q.After, prefix), prefix
}

// Among returns those of the keys that there are and whose labels match, in their order
// and as of one moment, without decoding any.
func Among(s Reader, keys []string, selector labels.Selector) ([]string, error) {
	headers, err := s.HeadersOf(keys)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, h := range headers {
		if selector.Matches(labels.Set(h.Labels)) {
			found = append(found, h.Key)
		}
	}
	return found, nil
}
