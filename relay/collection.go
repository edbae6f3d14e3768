package relay

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/unstructuredscheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/table"
)

// Collection is one scope that a Server serves.
type Collection struct {
	Scope  store.Scope
	Reader store.Reader
	// At is the moment whose state is told; it names a mark and has the resource version
	// that is told. The zero Place is now.
	At store.Place
	// Live means that a server is followed. Users are warned while it is not heard.
	Live bool
	// Note is what users have to know of the objects, as that a transform has changed
	// them; "" for nothing. It may change.
	Note string
}

// Source provides what a Server serves. It is asked for each request, so that collections
// may come and go.
type Source interface {
	Collections() []Collection
}

// Collections is a Source that does not change.
type Collections []Collection

// Collections implements Source.
func (c Collections) Collections() []Collection { return c }

// flusher is implemented by Readers that can write what was applied.
type flusher interface{ Flush(context.Context) error }

// These are the values of served.sized. A whole list shows that no object is stored with
// its kind, as a transform may set it; one that is ends it for good.
const (
	unknownSized int32 = iota
	isSized
	neverSized
)

// served is a Collection with what serves it. It implements rest.Getter, rest.Lister,
// rest.Watcher and rest.TableConvertor.
type served struct {
	Collection
	server   *Server
	Resource schema.GroupVersionResource
	payloads store.Payloader // nil if the objects are not kept encoded
	writes   *settler        // nil if there is nothing to write
	hub      *hub
	note     atomic.Pointer[string] // Note as the source has it now
	plain    *handlers.RequestScope // of requests for the objects
	other    *handlers.RequestScope // of requests for Tables and metadata

	// sized says whether the stored sizes are those of the messages.
	sized atomic.Int32

	printed struct {
		mu   sync.Mutex // protects the fields below
		at   time.Time
		kind table.Kind
	}
}

// newServed begins to serve a collection, until end is called.
func newServed(s *Server, c Collection) *served {
	out := &served{Collection: c, server: s, Resource: c.groupResource().WithVersion(c.Scope.Kind.Version)}
	out.note.Store(&c.Note)
	out.payloads, _ = c.Reader.(store.Payloader)
	if f, ok := c.Reader.(flusher); ok && c.At.IsZero() && c.Live {
		out.writes = newSettler(f.Flush)
	}
	codecs := scheme.Codecs.WithoutConversion()
	rs := handlers.RequestScope{
		Namer:            handlers.ContextBasedNaming{Namer: meta.NewAccessor()},
		Serializer:       serializer{codecs},
		ParameterCodec:   scheme.ParameterCodec,
		Convertor:        convertor{of: out},
		TableConvertor:   out,
		Resource:         out.Resource,
		Kind:             c.Scope.Kind,
		MetaGroupVersion: metav1.SchemeGroupVersion,
		HubGroupVersion:  c.Scope.Kind.GroupVersion(),
		Creater:          scheme.Scheme,
		Typer:            scheme.Scheme,
	}
	if c.Scope.Form != store.Typed {
		rs.Creater, rs.Typer = unstructuredscheme.NewUnstructuredCreator(), unstructuredscheme.NewUnstructuredObjectTyper()
	}
	other := rs
	switch c.Scope.Form {
	case store.Typed:
	case store.Unstructured: // as the server serves custom resources
		rs.StandardSerializers = without{codecs, runtime.ContentTypeProtobuf}.SupportedMediaTypes()
	case store.Metadata: // there are no objects
		rs.StandardSerializers = []runtime.SerializerInfo{{MediaType: "none/none"}}
	}
	out.plain, out.other = &rs, &other
	out.hub = newHub(out)
	return out
}

// isOf reports whether it serves a collection of the source, whose note may be another
// one.
func (s *served) isOf(c Collection) bool {
	return s.Reader == c.Reader && s.At == c.At
}

// quieter is implemented by Readers that know of a collection without bookmarks whether
// its state is as new as the server's.
type quieter interface{ IsQuiet() bool }

// staleAfter is how long a quiet kind may go without an event or a bookmark: the server
// sends these about each minute.
const staleAfter = 150 * time.Second

// warnings returns what a user has to know of the answer.
func (s *served) warnings(now time.Time) []string {
	var out []string
	// A monotonic clock stands still while the machine sleeps. A time to come is that of
	// a clock that was ahead: nobody knows how old that content is.
	isStale := func(t time.Time) bool { return now.Round(0).Sub(t).Abs() > staleAfter }
	switch c := s.Reader.Checkpoint(); {
	case !s.Live || c.Time.IsZero():
	case c.RV == "":
		// The time is when the resource version was given up.
		if state, err := s.Reader.History(); err == nil && isStale(state.Readable.Time) {
			out = append(out, fmt.Sprintf("%s: as of %s or later, it was not listed again yet", s.Scope.Resource, state.Readable.Time.UTC().Format(time.RFC3339)))
		}
	case isStale(c.Time) && !s.isQuiet():
		out = append(out, fmt.Sprintf("%s: as of %s, the server was not heard since, or an object cannot be stored", s.Scope.Resource, c.Time.UTC().Format(time.RFC3339)))
	}
	if note := *s.note.Load(); note != "" {
		out = append(out, s.Scope.Resource+": "+note)
	}
	if s.writes != nil {
		if err := s.writes.failure(); err != nil {
			out = append(out, s.Scope.Resource+": what was received last cannot be written: "+err.Error())
		}
	}
	return out
}

func (s *served) isQuiet() bool {
	r, ok := s.Reader.(quieter)
	return ok && r.IsQuiet()
}

// settler writes what was applied, for as many requests at once as want it.
type settler struct {
	flush  func(context.Context) error
	ctx    context.Context // ends with the collection
	cancel context.CancelFunc
	ended  sync.WaitGroup // its goroutines

	running sync.Mutex // held while a flush is running or waits for its turn
	mu      sync.Mutex // protects the fields below
	next    *flight    // the flush that has not begun; nil if there is none
	last    time.Time  // when the last one began
	err     error      // of the last one
	closed  bool
}

type flight struct {
	done chan struct{} // closed when it has ended
	err  error
}

const (
	settleEvery    = 100 * time.Millisecond // between two flushes
	settlePatience = 2 * time.Second        // for one of them
)

func newSettler(flush func(context.Context) error) *settler {
	s := &settler{flush: flush}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// end returns when all goroutines have ended. Nothing is written any more.
func (s *settler) end() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.ended.Wait()
}

// settle returns when all is written that was applied before the call, or when that takes
// too long.
func (s *settler) settle(ctx context.Context) error {
	s.mu.Lock()
	f := s.next
	switch {
	case s.closed:
		s.mu.Unlock()
		return store.ErrClosed
	case f == nil:
		f = &flight{done: make(chan struct{})}
		s.next = f
		s.ended.Go(func() { s.run(f) })
	}
	s.mu.Unlock()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *settler) run(f *flight) {
	s.running.Lock()
	defer s.running.Unlock()
	s.mu.Lock()
	wait := time.NewTimer(settleEvery - time.Since(s.last))
	s.mu.Unlock()
	select {
	case <-wait.C:
	case <-s.ctx.Done():
		wait.Stop()
	}
	s.mu.Lock()
	s.next, s.last = nil, time.Now()
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.ctx, settlePatience)
	defer cancel()
	f.err = s.flush(ctx)
	s.mu.Lock()
	s.err = f.err
	s.mu.Unlock()
	close(f.done)
}

// failure returns the error of the last flush.
func (s *settler) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
