package informer

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
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
)

// endpoint answers questions about running informers over HTTP, since nobody else
// may open the file that they work on.
//
// # Load
//
// Objects are read in chunks, as Lister.All does: a request never holds a
// transaction while its client receives. So many requests read at a time, the others
// wait a moment and are then refused. A client has writePatience to take each line, and
// answerTime for an answer that has an end; one that follows changes has a bounded buffer.
type endpoint struct {
	informers func() []*Informer
	status    func() []Status
	backend   store.Backend // may be nil
	routes    map[string]route

	reading   chan struct{} // holds one for each request that reads objects
	following chan struct{} // one for each that follows changes
	copying   chan struct{} // one for each copy of the file
}

// route is one path, with the names of its parameters.
type route struct {
	serve      func(*endpoint, *answer, question) error
	parameters []string
	repeated   string // the parameter that may be given more than once
}

const (
	maxReading, maxFollowing, maxCopying = 4, 64, 1

	slotPatience  = 5 * time.Second
	writePatience = 30 * time.Second
	readingTime   = 2 * time.Minute // of one request for objects
	answerTime    = readingTime + writePatience
	copyTime      = time.Hour // of one copy of the file
)

// Handler returns an HTTP handler that answers questions about the factory's
// informers; see Informer.Handler.
func (f *Factory) Handler() http.Handler {
	f.keepLogs()
	return newEndpoint(f.made, f.Status, f.backend)
}

// Handler returns an HTTP handler that answers questions about the informer: GET
// only, one JSON document, or where that is said one JSON object a line. It
// authenticates nobody, so serve it where only those reach it who may read the
// objects: see Serve. Values of Secrets are redacted unless secrets=show is asked
// for.
//
//	/v1/status                  an array of Status
//	/v1/scopes                  what each informer holds, by ID
//	/v1/objects                 objects, a line each
//	    namespace= selector= limit= after=KEY
//	/v1/object                  one: key=NAMESPACE/NAME
//	/v1/indexes                 names, and the identities of those that survive a restart
//	/v1/index                   values with their counts, a line each: name= limit= after=VALUE
//	/v1/query                   objects with a value of an index, a line each
//	    index= value= namespace= selector= limit= after=KEY
//	/v1/changes                 {"type", "object"} a line from now on, type ADDED, MODIFIED, DELETED
//	    since=now initial=true  what is there first, as INITIAL
//	    since=RV                what came after a resource version first
//	                            "listed": true is of what a list may have brought
//	/v1/snapshot                a copy of the database after its last commit
//	/v1/file, /v1/keys, /v1/records, /v1/headers
//	                            what informctl reads; they change with it
//
// All but status, file, scopes and snapshot take scope=ID, or scope=RESOURCE where that
// says which; with one informer it may be left out. Objects are those that readers
// of the informer see; a walk over many is no snapshot. What fails is
// {"error": "..."}: with 400 for a wrong parameter, 404 for what there is not, 405
// for another method, 503 where others are answered first, and with a "cause" where
// that is "damage" or "no key". Where lines have been sent before it is the last line.
//
// From the call of Handler on the informer remembers its last changes in memory: 8,192
// of them, and fewer where many large objects were deleted. The RV of since=RV is the
// metadata.resourceVersion of the last line that a client has got without initial=true
// and that is not "listed", since a list is told in the order of keys; or the checkpoint's
// of a /v1/status before it asked for /v1/objects. An object that has
// changed several times since is told of once, as it is now, at the place of its last
// change, ADDED if it was added since; one that came and went is left out. So who was
// cut off before that place, and goes on, may be told MODIFIED or DELETED of an object
// that it does not have. The answer is 410 where RV is older than what is remembered, as
// after a restart, or than a list that has brought changes, or is that of such a list and
// was known before; and 504 where RV is ahead of the informer for 5 seconds.
func (inf *Informer) Handler() http.Handler { return NewHandler(inf.opts.Backend, inf) }

// NewHandler returns an HTTP handler that answers questions about several informers
// of a backend; see Informer.Handler.
func NewHandler(backend store.Backend, informers ...*Informer) http.Handler {
	packer := newPacker()
	for _, inf := range informers {
		inf.keepLog(packer)
	}
	return newEndpoint(
		func() []*Informer { return informers },
		func() []Status { return statuses(informers) },
		backend,
	)
}

func newEndpoint(informers func() []*Informer, status func() []Status, backend store.Backend) *endpoint {
	return &endpoint{
		informers: informers, status: status, backend: backend,
		reading:   make(chan struct{}, maxReading),
		following: make(chan struct{}, maxFollowing),
		copying:   make(chan struct{}, maxCopying),
		routes: map[string]route{
			"/v1/status":   {(*endpoint).serveStatus, nil, ""},
			"/v1/file":     {(*endpoint).serveFile, nil, ""},
			"/v1/scopes":   {(*endpoint).serveScopes, nil, ""},
			"/v1/objects":  {(*endpoint).serveObjects, []string{"scope", "namespace", "selector", "limit", "after", "secrets"}, ""},
			"/v1/object":   {(*endpoint).serveObject, []string{"scope", "key", "secrets"}, ""},
			"/v1/indexes":  {(*endpoint).serveIndexes, []string{"scope"}, ""},
			"/v1/index":    {(*endpoint).serveIndex, []string{"scope", "name", "limit", "after", "secrets"}, ""},
			"/v1/query":    {(*endpoint).serveQuery, []string{"scope", "index", "value", "namespace", "selector", "limit", "after", "secrets"}, ""},
			"/v1/changes":  {(*endpoint).serveChanges, []string{"scope", "since", "initial", "secrets"}, ""},
			"/v1/keys":     {(*endpoint).serveKeys, []string{"scope", "index", "value", "selector", "key"}, "key"},
			"/v1/records":  {(*endpoint).serveRecords, []string{"scope", "key", "have", "secrets"}, "key"},
			"/v1/headers":  {(*endpoint).serveHeaders, []string{"scope", "key", "have", "secrets"}, "key"},
			"/v1/snapshot": {(*endpoint).serveSnapshot, nil, ""},
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
	if err == nil || r.Context().Err() != nil {
		return
	}
	status := http.StatusInternalServerError
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		status = refused.status
	case errors.Is(err, store.ErrClosed):
		status = http.StatusServiceUnavailable
	}
	if !a.begun {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
	}
	a.waits, a.ends = changesPatience, time.Time{}
	_ = a.line(wire.NewFailure(err)) // the client is gone, or it is not
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
		switch {
		case !slices.Contains(route.parameters, name) && len(route.parameters) == 0:
			return refuse(http.StatusBadRequest, "parameter %q is not known; %s takes none", name, r.URL.Path)
		case !slices.Contains(route.parameters, name):
			return refuse(http.StatusBadRequest, "parameter %q is not known; %s takes %s", name, r.URL.Path, strings.Join(route.parameters, ", "))
		case len(values[name]) > 1 && name != route.repeated:
			return refuse(http.StatusBadRequest, "parameter %q is given %d times, want it once", name, len(values[name]))
		}
	}
	q := question{ctx: r.Context(), Values: values}
	err = route.serve(e, a, q)
	if cause := cmp.Or(err, a.failure); isMended(cause) {
		if inf, unknown := e.find(q); unknown == nil {
			_ = inf.noticed(cause)
		}
	}
	return err
}

// question is what is asked for.
type question struct {
	ctx context.Context // the request's
	url.Values
}

// limit is how many are wanted; unset is what it is where nothing is said.
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

// oneOf is the value of a parameter that has few; the first stands for none.
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

// find returns the informer that is asked about.
func (e *endpoint) find(q question) (*Informer, error) {
	asked := q.Get("scope")
	known := map[string]string{} // by ID
	found := map[string]*Informer{}
	for _, inf := range e.informers() {
		scope := inf.Scope()
		id := scope.ID()
		known[id] = fmt.Sprintf("%s (%s)", id, scope)
		if asked != "" && asked != id && asked != scope.Resource {
			continue
		}
		// A second informer of a scope runs on memory.
		if other := found[id]; other == nil || !other.isPersisted() {
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

func (inf *Informer) isPersisted() bool {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	return inf.isPersistedLocked()
}

// slot waits for a place among those that do the same.
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

// answer is a response that may be sent line by line.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
	begun   bool
	failure error         // that ended it, where it was sent among parts
	waits   time.Duration // for the client, each time that something is written
	ends    time.Time     // nothing is written after it; zero is never
}

func newAnswer(w http.ResponseWriter) *answer {
	a := &answer{
		ResponseWriter: w, control: http.NewResponseController(w),
		waits: writePatience, ends: time.Now().Add(answerTime),
	}
	a.patient()
	return a
}

// patient gives the client time to take what is written next.
func (a *answer) patient() {
	deadline := time.Now().Add(a.waits)
	if !a.ends.IsZero() && a.ends.Before(deadline) {
		deadline = a.ends
	}
	_ = a.control.SetWriteDeadline(deadline) // not every writer has one
}

// Write implements io.Writer.
func (a *answer) Write(b []byte) (int, error) {
	a.patient()
	return a.ResponseWriter.Write(b)
}

// begin sends the header, if it was not sent.
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

// flush sends what was written.
func (a *answer) flush() error {
	a.patient()
	err := a.control.Flush()
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

func (e *endpoint) serveStatus(a *answer, _ question) error { return a.document(e.status()) }

// heldScope is one informer, for who wants to ask about its objects.
type heldScope struct {
	ScopeStatus
	Objects   int  `json:"objects"`
	Synced    bool `json:"synced"`
	Persisted bool `json:"persisted"`
}

func (e *endpoint) serveScopes(a *answer, _ question) error {
	scopes := []heldScope{}
	for _, s := range e.status() {
		scopes = append(scopes, heldScope{s.Scope, s.Objects, s.Synced, s.Persisted})
	}
	return a.document(scopes)
}
