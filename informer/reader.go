package informer

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
)

// Reader returns a reader of the informer's objects, for programs that inspect it. The
// value is the same for the life of the informer and may be used at any time; before
// Opened it is empty. If a list can repair the cause of an error, Reader's methods
// request the list and return the error at once.
//
// The value also implements store.Recorder and store.Payloader; their methods return
// errors.ErrUnsupported if the objects are held in memory. Its method
// Flush(context.Context) error is that of store.Store, and IsQuiet() bool reports whether
// the state is as new as the server's although its checkpoint is old: the server sends no
// bookmarks of this collection, nothing has come since, and the server has answered.
func (inf *Informer) Reader() store.Reader { return reader{inf.content, inf} }

// Opened reports whether Run has opened the scope.
func (inf *Informer) Opened() bool {
	return inf.state.Life().IsOpened()
}

// Persisted reports whether the objects are in the Backend's file. A second informer of
// the same scope holds its objects in memory.
func (inf *Informer) Persisted() bool {
	return inf.state.Life().IsOpened() && inf.opener.isPersistent()
}

// Info describes the scope as readers see it, in the form of Backend.Scopes. It contains
// no sizes.
func (inf *Informer) Info() store.Info {
	scope, s := inf.Scope(), inf.content.present()
	inf.mu.Lock()
	version := inf.opts.transformVersion(inf.transform)
	inf.mu.Unlock()
	checkpoint := s.Checkpoint()
	info := store.Info{
		ID: scope.ID(), Scope: scope, Objects: s.Len(), Checkpoint: checkpoint, Complete: checkpoint.RV != "",
		Codec: inf.codec.Name(), TypeFingerprint: inf.codec.Fingerprint(), TransformVersion: version,
	}
	identities := map[string]string{}
	for name, fn := range s.Indexers() {
		if index.IsNamespace(fn) {
			idx := index.Namespace()
			idx.Name = name
			identities[name] = idx.Identity()
		}
	}
	for _, idx := range inf.opts.Indexes {
		identities[idx.Name] = idx.Identity()
	}
	for _, name := range slices.Sorted(maps.Keys(identities)) {
		info.Indexes = append(info.Indexes, store.IndexInfo{Name: name, Identity: identities[name]})
	}
	return info
}

// reader implements Reader.
type reader struct {
	*content
	inf *Informer
}

var _ interface {
	store.Recorder
	store.Payloader
	store.LogFilterer
	store.MarkFinder
	Flush(context.Context) error
	IsQuiet() bool
} = reader{}

// quietFor is longer than two watches, which last for ten minutes at most; after each the
// reflector asks the server.
const quietFor = 25 * time.Minute

// IsQuiet is described at Informer.Reader.
func (r reader) IsQuiet() bool {
	r.inf.mu.Lock()
	pipeline := r.inf.pipeline
	r.inf.mu.Unlock()
	if pipeline == nil {
		return false
	}
	s := pipeline.Reflector().Status()
	// A monotonic clock stands still while the machine sleeps.
	age := time.Now().Round(0).Sub(s.LastAnswer)
	return s.LastBookmark.IsZero() && s.LastError == "" && !s.LastEvent.After(r.Checkpoint().Time) && age <= quietFor
}

func (r reader) Checkpoint() store.Checkpoint { return r.present().Checkpoint() }
func (r reader) Len() int                     { return r.present().Len() }
func (r reader) Indexers() cache.Indexers     { return r.present().Indexers() }

// History describes the log of the informer's scope; see store.Store.
func (inf *Informer) History() (store.LogState, error) { return inf.content.present().History() }

// Follow implements store.Reader. Before Opened there is nothing to follow.
func (r reader) Follow(ctx context.Context, after store.Place) iter.Seq2[store.Event, error] {
	return r.FollowSome(ctx, after, store.LogFilter{})
}

// FollowSome implements store.LogFilterer.
func (r reader) FollowSome(ctx context.Context, after store.Place, f store.LogFilter) iter.Seq2[store.Event, error] {
	if !r.state.Life().IsOpened() {
		return func(yield func(store.Event, error) bool) { yield(store.Event{}, store.ErrIncomplete) }
	}
	return store.FollowSome(ctx, r.present(), after, f)
}

// MarkAt implements store.MarkFinder. A log in memory has to be read.
func (r reader) MarkAt(p store.Place, readable bool) (m store.Mark, inside bool, err error) {
	if finder, ok := r.present().(store.MarkFinder); ok {
		return finder.MarkAt(p, readable)
	}
	return m, false, store.ErrTrimmed
}

func (r reader) History() (store.LogState, error) { return r.present().History() }

// Flush blocks until what was applied before the call is written, as store.Store.
func (r reader) Flush(ctx context.Context) error { return r.present().Flush(ctx) }

func (r reader) Entry(key string) (store.Entry, bool, error) {
	e, ok, err := r.present().Entry(key)
	return e, ok, r.noticed(err)
}

func (r reader) Select(q store.Query) ([]store.Entry, error) {
	entries, err := r.present().Select(q)
	return entries, r.noticed(err)
}

func (r reader) HeadersOf(keys []string) ([]store.Header, error) {
	headers, err := r.present().HeadersOf(keys)
	return headers, r.noticed(err)
}

func (r reader) Object(key string) (obj runtime.Object, exists bool, err error) {
	obj, exists, err = r.present().Object(key)
	return obj, exists, r.noticed(err)
}

func (r reader) Objects(q store.Query) ([]runtime.Object, error) {
	objects, err := r.present().Objects(q)
	return objects, r.noticed(err)
}

func (r reader) Keys(q store.Query) ([]string, error) {
	keys, err := r.present().Keys(q)
	return keys, r.noticed(err)
}

func (r reader) Values(indexName string) ([]string, error) {
	values, err := r.present().Values(indexName)
	return values, r.noticed(err)
}

func (r reader) Decode(e store.Entry) (runtime.Object, error) {
	obj, err := r.present().Decode(e)
	return obj, r.noticed(err)
}

// Records implements store.Recorder.
func (r reader) Records(keys []string) (store.Records, error) {
	recorder, ok := r.present().(store.Recorder)
	if !ok {
		return store.Records{}, errors.ErrUnsupported
	}
	records, err := recorder.Records(keys)
	return records, r.noticed(err)
}

// AppendPayload implements store.Payloader.
func (r reader) AppendPayload(buf []byte, e store.Entry) ([]byte, byte, error) {
	payloader, ok := r.present().(store.Payloader)
	if !ok {
		return buf, 0, errors.ErrUnsupported
	}
	out, codecID, err := payloader.AppendPayload(buf, e)
	return out, codecID, r.noticed(err)
}

// PayloadSize implements store.Payloader.
func (r reader) PayloadSize(e store.Entry) (int, byte, error) {
	payloader, ok := r.present().(store.Payloader)
	if !ok {
		return 0, 0, errors.ErrUnsupported
	}
	n, codecID, err := payloader.PayloadSize(e)
	return n, codecID, r.noticed(err)
}
