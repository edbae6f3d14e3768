package relay

import (
	"context"
	"fmt"
	"iter"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
)

// selection is what a request selects. An object has to meet every requirement; an index,
// a name or a namespace only narrows what is looked at.
type selection struct {
	namespace string // "" means all
	labels    labels.Selector
	fields    fields.Selector
	known     *fieldLabels // of the kind
	// needsObject means that the key is not enough for the requirements on fields.
	needsObject bool
}

const (
	maxSelector     = 8 << 10 // bytes of a selector
	maxRequirements = 100
)

// selection returns what a request selects.
func (s *served) selection(ctx context.Context, o *metainternalversion.ListOptions) (*selection, error) {
	out := &selection{namespace: request.NamespaceValue(ctx), labels: labels.Everything(), fields: fields.Everything(), known: s.fieldLabels()}
	if o.LabelSelector != nil {
		out.labels = o.LabelSelector
	}
	if o.FieldSelector != nil {
		out.fields = o.FieldSelector
	}
	requirements, _ := out.labels.Requirements()
	if len(requirements)+len(out.fields.Requirements()) > maxRequirements || len(out.labels.String()) > maxSelector || len(out.fields.String()) > maxSelector {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("selectors have at most %d requirements and %d bytes", maxRequirements, maxSelector))
	}
	out.needsObject = slices.ContainsFunc(out.fields.Requirements(), func(r fields.Requirement) bool {
		return r.Field != nameField && r.Field != namespaceField
	})
	return out, nil
}

// name returns the only name that an object can have; "" if there are several.
func (p *selection) name() string {
	name, _ := p.fields.RequiresExactMatch(nameField)
	return name
}

// isOneObject reports whether the key alone decides, and only one is selected.
func (p *selection) isOneObject() bool {
	return p.name() != "" && p.labels.Empty() && len(p.fields.Requirements()) == 1
}

// matches reports whether a state of an object is selected.
func (p *selection) matches(v *state) (bool, error) {
	if v == nil {
		return false, nil
	}
	if !p.matchesKey(v.key) || !p.labels.Matches(labels.Set(v.labels)) {
		return false, nil
	}
	if !p.needsObject {
		return true, nil
	}
	obj, err := v.decoded()
	if err != nil {
		return false, err
	}
	return p.matchesFields(obj)
}

func (p *selection) matchesKey(key string) bool {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil || p.namespace != "" && namespace != p.namespace {
		return false
	}
	return p.needsObject || p.fields.Matches(fields.Set{nameField: name, namespaceField: namespace})
}

func (p *selection) matchesFields(obj runtime.Object) (bool, error) {
	set, err := p.known.fieldSet(obj)
	return err == nil && p.fields.Matches(set), err
}

// query returns a query whose result contains all that is selected.
func (s *served) query(p *selection, at store.Place) store.Query {
	q := store.Query{Namespace: p.namespace, At: at, Encoded: true}
	if !p.labels.Empty() {
		q.Selector = p.labels
	}
	namespace := p.namespace
	if exact, ok := p.fields.RequiresExactMatch(namespaceField); ok && namespace == "" {
		namespace = exact
	}
	if namespace != "" && p.namespace == "" {
		q.Namespace = namespace
	}
	switch name := p.name(); {
	case name != "" && namespace != "":
		q.Keys = []string{namespace + "/" + name}
	case name != "" && !s.server.isNamespaced(s):
		q.Keys = []string{name}
	}
	if node, ok := p.fields.RequiresExactMatch(nodeField); ok && node != "" && q.Keys == nil && s.hasNodeIndex(at) {
		q.Index, q.Values = index.NodeName().Name, []string{node}
	}
	return q
}

// hasNodeIndex reports whether the index of nodes can be used at a place.
func (s *served) hasNodeIndex(at store.Place) bool {
	if s.Scope.Kind.Kind != "Pod" || s.Scope.Kind.Group != "" {
		return false
	}
	// A program may have another index of that name.
	if fn := s.Reader.Indexers()[index.NodeName().Name]; fn == nil || !index.IsNodeName(fn) {
		return false
	}
	_, err := s.Reader.Keys(store.Query{Index: index.NodeName().Name, Values: []string{""}, At: at})
	return err == nil
}

// pageSize is how many entries are read at once.
const pageSize = 256

// pages yields what is selected at a place, after a key, at most limit entries; 0 means
// all.
func (s *served) pages(ctx context.Context, p *selection, at store.Place, after string, limit int) iter.Seq2[[]store.Entry, error] {
	return s.pagesOf(ctx, p, at, after, limit, pageSize)
}

// pagesOf is pages, with so many entries in a page.
func (s *served) pagesOf(ctx context.Context, p *selection, at store.Place, after string, limit, size int) iter.Seq2[[]store.Entry, error] {
	return func(yield func([]store.Entry, error) bool) {
		q := s.query(p, at)
		q.After, q.Limit = after, size
		for left := limit; ctx.Err() == nil; {
			entries, err := s.Reader.Select(q)
			if err != nil {
				yield(nil, err)
				return
			}
			isLast := len(entries) < q.Limit
			if len(entries) > 0 {
				q.After = entries[len(entries)-1].Key
			}
			if entries, err = s.selected(p, entries); err != nil {
				yield(nil, err)
				return
			}
			if limit > 0 && len(entries) >= left {
				entries, isLast = entries[:left], true
			}
			left -= len(entries)
			if len(entries) > 0 && !yield(entries, nil) || isLast {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(nil, err)
		}
	}
}

// selected returns the entries that are selected, of those that a query has found.
func (s *served) selected(p *selection, entries []store.Entry) ([]store.Entry, error) {
	if p.fields.Empty() {
		return entries, nil
	}
	out := entries[:0]
	for _, e := range entries {
		is := p.matchesKey(e.Key)
		if is && p.needsObject {
			obj, err := s.Reader.Decode(e)
			if err == nil {
				is, err = p.matchesFields(obj)
			}
			if err != nil {
				return nil, fmt.Errorf("object %q: %w", e.Key, err)
			}
		}
		if is {
			out = append(out, e)
		}
	}
	return out, nil
}
