package fakeapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// ErrCloseAtOnce is an argument of FailWatch: the server accepts the watch and closes it
// without an event.
var ErrCloseAtOnce = errors.New("fakeapi: watch closed at once")

// Options configure the server. With the zero value it behaves like a real one.
type Options struct {
	// NoBookmarks disables bookmarks, except the one that ends a streamed list.
	NoBookmarks bool
	// NoWatchList refuses sendInitialEvents with a 422, as old servers do.
	NoWatchList bool
	// MaxPage is the maximum number of objects in one page of a list, whatever limit is
	// requested; 0 means no maximum. A list at resource version "0" is not paged.
	MaxPage int
	// RVPrefix is a prefix of each resource version. If it is set, resource versions
	// cannot be compared.
	RVPrefix string
}

// Request is a request that the server has received, with any result.
type Request struct {
	Verb    string // "list" or "watch"
	Options metav1.ListOptions
	Time    time.Time
}

// Server contains one collection. Create one with New.
type Server struct {
	opts    Options
	example runtime.Object
	list    runtime.Object

	// mu protects the fields below and those of watcher.
	mu       sync.Mutex
	now      uint64 // the current resource version
	oldest   uint64 // the lowest resource version that a watch may start from
	state    map[string]runtime.Object
	log      []change // all changes; Compact only hides them, and Rewind needs them
	watchers map[*watcher]struct{}
	requests []Request
	down     bool
	held     chan struct{} // closed by Release; nil if Hold is not active
	delay    time.Duration
	// Errors of the next requests, in order.
	failLists, failWatches []error
}

var (
	_ cache.ListerWatcher            = (*Server)(nil)
	_ cache.ListerWatcherWithContext = (*Server)(nil)
)

// change is one write to the collection.
type change struct {
	rv    uint64
	key   string
	event watch.Event
}

// New returns a server with an empty collection at resource version 1. example is an
// object of the collection's type and list an empty list of that type; New changes
// neither.
func New(example, list runtime.Object, opts Options) *Server {
	return &Server{
		opts: opts, example: example, list: list, now: 1,
		state: map[string]runtime.Object{}, watchers: map[*watcher]struct{}{},
	}
}

// Create adds a copy of the object and returns its resource version. The copy gets a UID
// if the object has none. The error is an AlreadyExists, or reports that obj has no name.
func (s *Server) Create(obj runtime.Object) (rv string, err error) {
	return s.write(watch.Added, obj)
}

// Update replaces the object by a copy of obj and returns its resource version. It
// ignores the resource version of obj. The error is a NotFound.
func (s *Server) Update(obj runtime.Object) (rv string, err error) {
	return s.write(watch.Modified, obj)
}

func (s *Server) write(t watch.EventType, obj runtime.Object) (string, error) {
	obj = obj.DeepCopyObject()
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return "", fmt.Errorf("fakeapi: %w", err)
	}
	if accessor.GetName() == "" {
		return "", errors.New("fakeapi: object without a name")
	}
	key := cache.MetaObjectToName(accessor).String()
	s.mu.Lock()
	defer s.mu.Unlock()
	held, exists := s.state[key]
	switch {
	case t == watch.Added && exists:
		return "", apierrors.NewAlreadyExists(schema.GroupResource{}, key)
	case t == watch.Modified && !exists:
		return "", apierrors.NewNotFound(schema.GroupResource{}, key)
	case accessor.GetUID() != "":
	case exists:
		if was, err := meta.Accessor(held); err == nil {
			accessor.SetUID(was.GetUID())
		}
	default:
		accessor.SetUID(types.UID(fmt.Sprintf("uid-%d", s.now+1)))
	}
	s.state[key] = obj
	return s.recordLocked(t, key, obj, accessor), nil
}

// Delete removes the object with the key (namespace/name) and returns the resource
// version of the deletion. The error is a NotFound.
func (s *Server) Delete(key string) (rv string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj, exists := s.state[key]
	if !exists {
		return "", apierrors.NewNotFound(schema.GroupResource{}, key)
	}
	delete(s.state, key)
	obj = obj.DeepCopyObject()
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return "", fmt.Errorf("fakeapi: %w", err)
	}
	return s.recordLocked(watch.Deleted, key, obj, accessor), nil
}

func (s *Server) recordLocked(t watch.EventType, key string, obj runtime.Object, accessor metav1.Object) string {
	s.now++
	rv := s.format(s.now)
	accessor.SetResourceVersion(rv)
	s.log = append(s.log, change{rv: s.now, key: key, event: watch.Event{Type: t, Object: obj}})
	s.wakeLocked()
	return rv
}

// Advance increases the resource version without a change, like a write to another
// collection, and returns it.
func (s *Server) Advance() (rv string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now++
	return s.format(s.now)
}

// RV returns the current resource version.
func (s *Server) RV() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.format(s.now)
}

// Compact drops the changes up to rv: a watch or a list from a lower resource version
// gets a 410. Open watches continue. The error reports that rv is malformed.
func (s *Server) Compact(rv string) error {
	n, err := s.parse(rv)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest = max(s.oldest, min(n, s.now))
	return nil
}

// Rewind restores the state and the resource version that the server had at rv, like an
// etcd that is restored from a snapshot, and closes all watches. The error reports that
// rv is malformed or in the future.
func (s *Server) Rewind(rv string) error {
	n, err := s.parse(rv)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > s.now {
		return fmt.Errorf("fakeapi: %s is later than %s", rv, s.format(s.now))
	}
	s.state = s.stateLocked(n)
	s.log = s.log[:s.afterLocked(n)]
	s.now, s.oldest = n, min(s.oldest, n)
	s.closeWatchesLocked()
	return nil
}

// Down closes all watches and refuses connections until Up.
func (s *Server) Down() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	s.closeWatchesLocked()
}

// Up ends Down.
func (s *Server) Up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
}

// FailList makes the next lists fail with one error each; for a nil, the list succeeds.
func (s *Server) FailList(errs ...error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failLists = append(s.failLists, errs...)
}

// FailWatch makes the next watches, including streamed lists, fail with one error each;
// for a nil, the watch succeeds. See ErrCloseAtOnce and InStream.
func (s *Server) FailWatch(errs ...error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failWatches = append(s.failWatches, errs...)
}

// Slow makes the server wait for d before it sends an event, also in open watches.
func (s *Server) Slow(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}

// Send sends an event unchanged to all open watches, before any change that they have not
// sent yet. The event is never replayed. A watch.Error replaces everything that waits and
// ends the watch. The object must not be changed afterwards.
func (s *Server) Send(e watch.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		if e.Type == watch.Error {
			w.queue = nil
		}
		w.queue = append(w.queue, e)
	}
	s.wakeLocked()
}

// Hold makes lists wait for Release, as if there were very many objects: a paged list
// waits before each page, a streamed list before its first event. Watches continue, and a
// list with limit 1 is answered.
func (s *Server) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = make(chan struct{})
	}
}

// Release ends Hold. A page shows the state at the time of Release, a streamed list the
// state at the time of its request.
func (s *Server) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held != nil {
		close(s.held)
		s.held = nil
	}
}

// CloseWatches closes all watches. It drops the events that they have not sent.
func (s *Server) CloseWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeWatchesLocked()
}

// Watches returns the number of open watches.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watchers)
}

// Requests returns all requests so far, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *Server) wakeLocked() {
	for w := range s.watchers {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

func (s *Server) closeWatchesLocked() {
	for w := range s.watchers {
		w.Stop()
		delete(s.watchers, w)
	}
}

// acceptLocked records a request and returns its error, if it must fail.
func (s *Server) acceptLocked(ctx context.Context, verb string, opts metav1.ListOptions, fail *[]error) error {
	s.requests = append(s.requests, Request{Verb: verb, Options: *opts.DeepCopy(), Time: time.Now()})
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.down {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	if len(*fail) > 0 {
		err := (*fail)[0]
		if *fail = (*fail)[1:]; err != nil {
			return err
		}
	}
	if opts.FieldSelector != "" || opts.LabelSelector != "" && opts.SendInitialEvents == nil {
		return apierrors.NewBadRequest("fakeapi: selectors are not supported")
	}
	return nil
}

// stateLocked returns the state of the collection at rv.
func (s *Server) stateLocked(rv uint64) map[string]runtime.Object {
	if rv == s.now {
		return s.state
	}
	state := map[string]runtime.Object{}
	for _, c := range s.log[:s.afterLocked(rv)] {
		if c.event.Type == watch.Deleted {
			delete(state, c.key)
		} else {
			state[c.key] = c.event.Object
		}
	}
	return state
}

// afterLocked returns the index of the first change after rv.
func (s *Server) afterLocked(rv uint64) int {
	i, _ := slices.BinarySearchFunc(s.log, rv+1, func(c change, rv uint64) int { return cmp.Compare(c.rv, rv) })
	return i
}

func (s *Server) format(rv uint64) string { return s.opts.RVPrefix + strconv.FormatUint(rv, 10) }

// parse parses a resource version; "" and "0" are 0.
func (s *Server) parse(rv string) (uint64, error) {
	if rv == "" || rv == "0" {
		return 0, nil
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(rv, s.opts.RVPrefix), 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("fakeapi: invalid resource version %q", rv))
	}
	return n, nil
}

func (s *Server) tooOld(rv uint64) *apierrors.StatusError {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", rv, s.oldest))
}

func (s *Server) tooLarge(rv uint64) *apierrors.StatusError {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", rv, s.now), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}
