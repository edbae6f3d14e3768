package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
)

// endpoint is the handler that NewHandler returns.
type endpoint struct {
	source Source
	routes map[string]route

	reading   chan struct{} // one element per request that reads objects
	following chan struct{} // one element per request that follows changes
	copying   chan struct{} // one element per copy of the file
}

// Source provides the informers of a process; *informer.Factory implements it. Its
// methods may be called at any time.
type Source interface {
	Informers() []*informer.Informer // those that have not ended
	Status() []informer.Status       // the status of each informer
	Backend() store.Backend          // nil if objects are only held in memory
}

// Of returns the Source of informers without a Factory, and of their backend, which may
// be nil. One that has ended answers only if no other one of its scope runs.
func Of(backend store.Backend, informers ...*informer.Informer) Source {
	return several{backend, informers}
}

type several struct {
	backend   store.Backend
	informers []*informer.Informer
}

func (s several) Informers() []*informer.Informer { return s.informers }
func (s several) Status() []informer.Status       { return informer.Statuses(s.informers) }
func (s several) Backend() store.Backend          { return s.backend }

// route handles one path.
type route struct {
	serve      func(*endpoint, *answer, question) error
	parameters []string // those with ... may be repeated
}

// objects are the parameters that say which objects are asked for.
var objects = []string{"scope", "namespace", "selector", "key...", "index", "value...", "limit", "after", "secrets", "notOlderThan"}

const (
	maxReading, maxFollowing, maxCopying = 4, 1024, 1

	slotPatience  = 5 * time.Second
	writePatience = 30 * time.Second
	readingTime   = 2 * time.Minute // for one request that reads objects
	answerTime    = readingTime + writePatience
	copyTime      = time.Hour // for one copy of the file
)

// NewHandler returns an HTTP handler that answers questions about running informers; the
// package comment lists the requests.
func NewHandler(source Source) http.Handler {
	return &endpoint{
		source:    source,
		reading:   make(chan struct{}, maxReading),
		following: make(chan struct{}, maxFollowing),
		copying:   make(chan struct{}, maxCopying),
		routes: map[string]route{
			"/v1/status":    {(*endpoint).serveStatus, nil},
			"/v1/consumers": {(*endpoint).serveConsumers, nil},
			"/v1/file":      {(*endpoint).serveFile, nil},
			"/v1/scopes":    {(*endpoint).serveScopes, nil},
			"/v1/objects":   {(*endpoint).serveObjects, objects},
			"/v1/indexes":   {(*endpoint).serveIndexes, []string{"scope"}},
			"/v1/index":     {(*endpoint).serveIndex, []string{"scope", "name", "limit", "after", "secrets", "notOlderThan"}},
			"/v1/changes":   {(*endpoint).serveChanges, []string{"scope", "since", "initial", "namespace", "selector", "old", "bookmarks", "secrets"}},
			"/v1/history":   {(*endpoint).serveHistory, []string{"scope"}},
			"/v1/log":       {(*endpoint).serveLog, []string{"scope", "after", "since", "namespace", "name...", "secrets"}},
			"/v1/keys":      {(*endpoint).serveKeys, objects},
			"/v1/records":   {(*endpoint).serveRecords, []string{"scope", "key...", "have", "secrets", "notOlderThan"}},
			"/v1/headers":   {(*endpoint).serveHeaders, []string{"scope", "key...", "notOlderThan"}},
			"/v1/snapshot":  {(*endpoint).serveSnapshot, nil},
		},
	}
}

// refusal is an error with its HTTP status.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// ServeHTTP implements http.Handler.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := newAnswer(w)
	err := e.answer(a, r)
	hasEnded := r.Context().Err() != nil
	switch {
	case hasEnded && a.ends.IsZero(): // such an answer is never whole
		if err = context.Cause(r.Context()); !errors.Is(err, errEnds) {
			return // the client has disconnected
		}
	case err == nil:
		return
	case hasEnded:
		panic(http.ErrAbortHandler) // the client must see that the answer is incomplete
	}
	status := http.StatusInternalServerError
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		status = refused.status
	case errors.Is(err, store.ErrTrimmed), errors.Is(err, store.ErrLineage):
		status = http.StatusGone
	case errors.Is(err, store.ErrNoIndex):
		status = http.StatusNotFound
	case errors.Is(err, store.ErrAhead):
		status = http.StatusGatewayTimeout
	case errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrWiped), errors.Is(err, informer.ErrNotOpened), errors.Is(err, informer.ErrStopped):
		status = http.StatusServiceUnavailable
	}
	if !a.begun {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
	}
	a.waits, a.ends = informer.FollowPatience, time.Time{}
	// An error means that the client has disconnected.
	if a.writer != nil {
		_ = a.writer.Error(err)
		return
	}
	_ = a.line(wire.NewFailure(err))
}

func (e *endpoint) answer(a *answer, r *http.Request) error {
	route, ok := e.routes[r.URL.Path]
	if !ok {
		return refuse(http.StatusNotFound, "path %s is not known; there are %s", r.URL.Path, list(maps.Keys(e.routes)))
	}
	if r.Method != http.MethodGet {
		a.Header().Set("Allow", http.MethodGet)
		return refuse(http.StatusMethodNotAllowed, "method %s is not allowed, only GET", r.Method)
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return refuse(http.StatusBadRequest, "parameters cannot be read: %v", err)
	}
	for name := range values {
		i := slices.IndexFunc(route.parameters, func(p string) bool { return strings.TrimSuffix(p, "...") == name })
		switch {
		case i < 0 && len(route.parameters) == 0:
			return refuse(http.StatusBadRequest, "parameter %q is not known; %s takes none", name, r.URL.Path)
		case i < 0:
			known := strings.ReplaceAll(strings.Join(route.parameters, ", "), "...", "")
			return refuse(http.StatusBadRequest, "parameter %q is not known; %s takes %s", name, r.URL.Path, known)
		case len(values[name]) > 1 && !strings.HasSuffix(route.parameters[i], "..."):
			return refuse(http.StatusBadRequest, "parameter %q is given %d times, want it once", name, len(values[name]))
		}
	}
	return route.serve(e, a, question{ctx: r.Context(), Values: values})
}

// question contains the parameters of a request.
type question struct {
	ctx context.Context // the request's
	url.Values
}

// limit returns the value of the parameter limit, or unset if there is none.
func (q question) limit(unset int) (int, error) {
	if !q.Has("limit") {
		return unset, nil
	}
	n, err := strconv.Atoi(q.Get("limit"))
	if err != nil || n < 1 {
		return 0, refuse(http.StatusBadRequest, "limit is %q, want a number from 1 on", q.Get("limit"))
	}
	return n, nil
}

// oneOf returns the value of a parameter that must be one of values; the first is the
// default.
func (q question) oneOf(name string, values ...string) (string, error) {
	if !q.Has(name) {
		return values[0], nil
	}
	if v := q.Get(name); slices.Contains(values, v) {
		return v, nil
	}
	return "", refuse(http.StatusBadRequest, "%s is %q, want %s", name, q.Get(name), strings.Join(values, " or "))
}

func (q question) showsSecrets() (bool, error) {
	v, err := q.oneOf("secrets", "redact", "show")
	return v == "show", err
}

func (q question) selector() (labels.Selector, error) {
	selector, err := labels.Parse(q.Get("selector"))
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "selector %q: %v; want one such as app=web,tier!=db", q.Get("selector"), err)
	}
	return selector, nil
}

func list(names func(func(string) bool)) string { return strings.Join(slices.Sorted(names), ", ") }

// rank orders the informers of one scope by how good their answer is: a second one that
// runs holds its objects in memory. Of equal ones the last answers.
func rank(inf *informer.Informer) int {
	switch {
	case inf.IsStopped():
		return 0
	case inf.Persisted():
		return 2
	}
	return 1
}

// find returns the informer that the parameter scope names.
func (e *endpoint) find(q question) (*informer.Informer, error) {
	asked := q.Get("scope")
	known := map[string]string{} // by ID
	found := map[string]*informer.Informer{}
	for _, inf := range e.source.Informers() {
		scope := inf.Scope()
		id := scope.ID()
		known[id] = fmt.Sprintf("%s (%s)", id, scope)
		if asked != "" && asked != id && asked != scope.Resource {
			continue
		}
		if other := found[id]; other == nil || rank(inf) >= rank(other) {
			found[id] = inf
		}
	}
	switch {
	case len(found) == 0 && len(known) == 0:
		return nil, refuse(http.StatusNotFound, "there is no informer")
	case len(found) == 0:
		return nil, refuse(http.StatusNotFound, "scope %q is not known; there are %s", asked, list(maps.Values(known)))
	case len(found) > 1:
		return nil, refuse(http.StatusBadRequest, "scope %q may be several; name one by its ID: %s", asked, list(maps.Values(known)))
	}
	return slices.Collect(maps.Values(found))[0], nil
}

// opened is find for requests that read objects: before the informer has opened its
// scope, it seems to be empty. It waits for the resource version that is asked for.
func (e *endpoint) opened(q question) (*informer.Informer, error) {
	inf, err := e.find(q)
	if err == nil {
		err = q.await(inf)
	}
	if err == nil && !inf.Opened() {
		return nil, informer.ErrNotOpened
	}
	return inf, err
}

// await waits until the informer's state is at least as new as the parameter
// notOlderThan says, for commitPatience.
func (q question) await(inf *informer.Informer) error {
	rv, err := q.notOlderThan()
	if rv == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(q.ctx, commitPatience)
	defer cancel()
	err = inf.NotOlderThan(ctx, rv)
	if errors.Is(err, context.DeadlineExceeded) && q.ctx.Err() == nil {
		return tooOld(rv, inf.Reader().Checkpoint().RV)
	}
	return err
}

// notOlderThan returns the parameter of that name, "" if there is none.
func (q question) notOlderThan() (string, error) {
	rv := q.Get("notOlderThan")
	if _, err := resourceversion.CompareResourceVersion(rv, rv); q.Has("notOlderThan") && err != nil {
		return "", refuse(http.StatusBadRequest, "notOlderThan is %q, want a resource version, which is a number from 1 on", rv)
	}
	return rv, nil
}

// tooOld is the error for a resource version that is not reached.
func tooOld(rv, is string) error {
	return &placeError{store.ErrAhead, fmt.Sprintf("resource version %s is ahead of what is stored, resource version %s", rv, cmp.Or(is, "none"))}
}

// slot waits until slots has room, and occupies one place until release is called.
func (q question) slot(slots chan struct{}) (release func(), err error) {
	t := time.NewTimer(slotPatience)
	defer t.Stop()
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-q.ctx.Done():
		return nil, q.ctx.Err()
	case <-t.C:
		return nil, refuse(http.StatusServiceUnavailable, "busy with %d such requests; try again", cap(slots))
	}
}

// catchingUp occupies a place of a request that reads objects until it is released, for
// readingTime at most: a slower request reads little. release may be called repeatedly.
func (e *endpoint) catchingUp(q question) (release func(), err error) {
	leave, err := q.slot(e.reading)
	if err != nil {
		return nil, err
	}
	leave = sync.OnceFunc(leave)
	slow := time.AfterFunc(readingTime, leave)
	return func() { slow.Stop(); leave() }, nil
}

// answer is a response that can be sent line by line.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
	writer  *wire.Writer // nil if the answer does not consist of parts
	begun   bool
	waits   time.Duration // the time that the client has for each write
	ends    time.Time     // the deadline of the whole answer; zero means none
}

func newAnswer(w http.ResponseWriter) *answer {
	a := &answer{
		ResponseWriter: w, control: http.NewResponseController(w),
		waits: writePatience, ends: time.Now().Add(answerTime),
	}
	a.patient()
	return a
}

// patient sets the deadline of the next write.
func (a *answer) patient() {
	deadline := time.Now().Add(a.waits)
	if !a.ends.IsZero() && a.ends.Before(deadline) {
		deadline = a.ends
	}
	_ = a.control.SetWriteDeadline(deadline) // not every writer supports deadlines
}

// Write implements io.Writer.
func (a *answer) Write(b []byte) (int, error) {
	a.patient()
	return a.ResponseWriter.Write(b)
}

// begin sets the content type, unless it is set already.
func (a *answer) begin(contentType string) {
	if !a.begun {
		a.Header().Set("Content-Type", contentType)
		a.begun = true
	}
}

func (a *answer) document(v any) error {
	a.begin("application/json")
	return a.line(v)
}

func (a *answer) line(v any) error {
	return json.NewEncoder(a).Encode(v)
}

// parts returns the writer of an answer that consists of parts.
func (a *answer) parts() *wire.Writer {
	if a.writer == nil {
		a.begin(wire.ContentType)
		a.writer = wire.NewWriter(a)
	}
	return a.writer
}

// flush sends the buffered bytes to the client.
func (a *answer) flush() error {
	if a.writer != nil {
		if err := a.writer.Flush(); err != nil {
			return err
		}
	}
	a.patient()
	err := a.control.Flush()
	if a.ends.IsZero() {
		// HTTP/2 ends an answer whose deadline has passed, also if nothing is written.
		_ = a.control.SetWriteDeadline(time.Time{})
	}
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

func (e *endpoint) serveStatus(a *answer, _ question) error { return a.document(e.source.Status()) }

func (e *endpoint) serveConsumers(a *answer, _ question) error {
	return a.document(durable.Statuses(e.source.Backend()))
}

// heldScope describes one informer to clients that request its objects.
type heldScope struct {
	informer.ScopeStatus
	Objects   int  `json:"objects"`
	Synced    bool `json:"synced"`
	Persisted bool `json:"persisted"`
}

func (e *endpoint) serveScopes(a *answer, _ question) error {
	scopes := []heldScope{}
	for _, s := range e.source.Status() {
		scopes = append(scopes, heldScope{s.Scope, s.Objects, s.Synced, s.Persisted})
	}
	return a.document(scopes)
}
