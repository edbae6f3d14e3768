package store

import "k8s.io/apimachinery/pkg/labels"

// Query specifies which objects a read returns. An object must match every field that is
// set; the zero value matches all objects.
type Query struct {
	// Index and Values select the objects that have one of Values in the index named
	// Index.
	Index  string
	Values []string
	// Keys, if it is not nil, selects the objects with these keys.
	Keys []string
	// Namespace "" selects all namespaces and cluster-scoped objects.
	Namespace string
	// Selector selects by labels; nil selects all entries. Its Requirements method is
	// called once, before anything is read; its Matches method is never called.
	Selector labels.Selector
	// After and Limit select a page: at most Limit entries with keys greater than After.
	// Limit 0 means no limit. A result shorter than Limit is the end. Keys of more than a
	// KiB that begin alike may come in any order, always the same one.
	After string
	Limit int
	// Encoded asks Select for entries with Raw, also of objects that are decoded already.
	// Backends that keep no object encoded, and other methods, ignore it.
	Encoded bool
	// At asks for the state at a moment; the zero Place is now. Errors: ErrTrimmed,
	// ErrLineage, ErrAhead, and ErrNoIndex for an index that did not exist then.
	At Place
}

// Matcher returns a Selector of package labels that is equivalent to q.Selector. A
// backend can run it where it must not call user code.
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

// Range returns the range of keys that the query can match: the keys that are greater
// than after and begin with prefix. They are contiguous in key order.
func (q Query) Range() (after, prefix string) {
	if q.Namespace == "" {
		return q.After, ""
	}
	prefix = q.Namespace + "/"
	return max(q.After, prefix), prefix
}

// Among returns those of the given keys that exist and whose labels match selector, in
// the given order and as of one moment. It decodes no objects.
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
