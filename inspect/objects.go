package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/secret"
	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
)

// printer converts objects of a scope to JSON.
type printer struct {
	scope   store.Scope
	secrets bool // show the values of Secrets
}

func (q question) printer(inf *informer.Informer) (printer, error) {
	show, err := q.showsSecrets()
	return printer{inf.Scope(), show}, err
}

// json returns the JSON of an object with apiVersion and kind, which are empty in
// generated types. It does not change the object.
func (p printer) json(obj runtime.Object) (json.RawMessage, error) {
	kind := obj.GetObjectKind().GroupVersionKind()
	unnamed := kind.Kind == "" && p.scope.Kind.Kind != ""
	if kind.Kind == "" {
		kind = p.scope.Kind
	}
	if !p.secrets && secret.Is(p.scope, obj) {
		var err error
		if obj, err = secret.Redact(obj); err != nil {
			return nil, err
		}
	}
	b, err := json.Marshal(wire.WithKinds(obj))
	if err != nil {
		return nil, fmt.Errorf("print a %T: %w", obj, err)
	}
	if unnamed {
		head, err := json.Marshal(map[string]string{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind})
		if err != nil {
			return nil, err
		}
		b = append(append(head[:len(head)-1], ','), b[1:]...)
	}
	return b, nil
}

func (e *endpoint) serveObjects(a *answer, q question) error {
	inf, err := e.opened(q)
	if err != nil {
		return err
	}
	p, err := q.printer(inf)
	if err != nil {
		return err
	}
	s := inf.Reader()
	part, err := e.query(q, held{inf.Scope(), s, inf})
	if err != nil {
		return err
	}
	release, err := q.slot(e.reading)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(q.ctx, readingTime)
	defer cancel()
	return eachPart(part, objectsChunk, func(part store.Query) (n int, last string, err error) {
		if ctx.Err() != nil {
			return 0, "", fmt.Errorf("the request took longer than %s; ask for the rest with after=%s", readingTime, part.After)
		}
		return sendChunk(a, s, p, part)
	})
}

// query returns which objects a request asks for. It refuses a value of an index that may
// not be looked up.
func (e *endpoint) query(q question, h held) (part store.Query, err error) {
	part = store.Query{Namespace: q.Get("namespace"), Keys: q.Values["key"], After: q.Get("after"), Values: q.Values["value"]}
	if part.Limit, err = q.limit(0); err != nil {
		return part, err
	}
	if part.Selector, err = q.selector(); err != nil || !q.Has("index") && !q.Has("value") {
		return part, err
	}
	if part.Index, err = q.index(h.store, "index"); err != nil {
		return part, err
	}
	if !q.Has("value") {
		return part, refuse(http.StatusBadRequest, "value is missing, want one that /v1/index?name=%s lists", part.Index)
	}
	return part, e.mayLookUp(q, h, part.Index)
}

// eachPart calls read with one part of a query after the other, of at most size objects.
// read returns how many objects there were, and the key of the last one.
func eachPart(part store.Query, size int, read func(store.Query) (n int, last string, err error)) error {
	for left := cmp.Or(part.Limit, math.MaxInt); ; {
		part.Limit = min(left, size)
		n, last, err := read(part)
		if left -= n; err != nil || n < part.Limit || left == 0 {
			return err
		}
		part.After = last
	}
}

// index returns the name of the index in a parameter.
func (q question) index(s store.Reader, parameter string) (string, error) {
	indexers := s.Indexers()
	name := q.Get(parameter)
	// A Query without a name asks for no index.
	if _, ok := indexers[name]; ok && name != "" {
		return name, nil
	}
	there := "there are " + list(maps.Keys(indexers))
	if len(indexers) == 0 {
		there = "the informer has none"
	}
	if name == "" {
		return "", refuse(http.StatusBadRequest, "%s is missing, want the name of an index; %s", parameter, there)
	}
	return "", &placeError{store.ErrNoIndex, fmt.Sprintf("index %q is not known; %s", name, there)}
}

// mayLookUp refuses a question about the values of an index that may be hidden values of
// Secrets, unless the request asks for these.
func (e *endpoint) mayLookUp(q question, h held, name string) error {
	show, err := q.showsSecrets()
	if err != nil || show || !h.scope.IsSecret() {
		return err
	}
	indexes, err := e.indexesOf(h)
	if err != nil || slices.ContainsFunc(indexes, func(i store.IndexInfo) bool { return i.Name == name && secret.ShowsIndex(i) }) {
		return err
	}
	return refuse(http.StatusForbidden, "index %q may contain values of Secrets; ask with secrets=show", name)
}

// indexesOf returns the indexes of what is read: another informer of the same scope may
// have others of the same names.
func (e *endpoint) indexesOf(h held) ([]store.IndexInfo, error) {
	if h.inf != nil {
		return h.inf.Info().Indexes, nil
	}
	if e.source.Backend() == nil {
		return nil, nil
	}
	scopes, err := e.source.Backend().Scopes()
	for _, info := range scopes {
		if info.Scope == h.scope {
			return info.Indexes, nil
		}
	}
	return nil, err
}

// objectsChunk is the number of objects that are read at a time.
const objectsChunk = 256

func sendChunk(a *answer, s store.Reader, p printer, part store.Query) (n int, last string, err error) {
	entries, err := s.Select(part)
	if err != nil {
		return 0, "", err
	}
	objects, err := store.DecodeAll[runtime.Object](s, entries)
	if err != nil {
		return 0, "", err
	}
	a.begin("application/jsonl")
	for i, obj := range objects {
		last = entries[i].Key
		b, err := p.json(obj)
		if err != nil {
			return 0, "", fmt.Errorf("object %q: %w", last, err)
		}
		if err := a.line(b); err != nil {
			return 0, "", err
		}
	}
	return len(objects), last, a.flush()
}

// heldIndex describes one index. The entries of an index without an identity are rebuilt
// at each start.
type heldIndex struct {
	Name     string `json:"name"`
	Identity string `json:"identity,omitempty"`
}

func (e *endpoint) serveIndexes(a *answer, q question) error {
	inf, err := e.opened(q)
	if err != nil {
		return err
	}
	identities := map[string]string{}
	for _, idx := range inf.Info().Indexes {
		identities[idx.Name] = idx.Identity
	}
	for name := range inf.Reader().Indexers() {
		identities[name] += "" // an index that is rebuilt at each start has none
	}
	indexes := []heldIndex{}
	for _, name := range slices.Sorted(maps.Keys(identities)) {
		indexes = append(indexes, heldIndex{name, identities[name]})
	}
	return a.document(indexes)
}

// indexValue is one value of an index.
type indexValue struct {
	Value string `json:"value"`
	Count int    `json:"count"`
}

// manyValues is the default limit for the values of an index.
const manyValues = 1000

func (e *endpoint) serveIndex(a *answer, q question) error {
	h, show, err := e.heldAndShown(q)
	if err != nil {
		return err
	}
	s := h.store
	name, err := q.index(s, "name")
	if err != nil {
		return err
	}
	if q.Has("after") { // the values that follow tell how it compares
		if err := e.mayLookUp(q, h, name); err != nil {
			return err
		}
	}
	left, err := q.limit(manyValues)
	if err != nil {
		return err
	}
	release, err := q.slot(e.reading)
	if err != nil {
		return err
	}
	defer release()
	begin := time.Now()
	values, err := s.Values(name)
	if err != nil {
		return err
	}
	a.begin("application/jsonl")
	for _, value := range values {
		if q.Has("after") && value <= q.Get("after") {
			continue
		}
		if left--; left < 0 {
			break
		}
		if time.Since(begin) > readingTime {
			if !show && h.scope.IsSecret() {
				value = secret.Redacted
			}
			return fmt.Errorf("the request took longer than %s; ask for the rest with after, from value %q on", readingTime, value)
		}
		keys, err := s.Keys(store.Query{Index: name, Values: []string{value}})
		if err != nil {
			return err
		}
		if !show && h.scope.IsSecret() {
			value = secret.Redacted // an index may contain secret values
		}
		if err := a.line(indexValue{value, len(keys)}); err != nil {
			return err
		}
	}
	return a.flush()
}
