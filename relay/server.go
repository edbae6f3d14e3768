package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/informctl/informctl/store"
)

// Options configure a Server.
type Options struct {
	// Token is what a client has to show, as a bearer token. It must not be empty.
	Token string
	// Secrets serves Secrets, in all forms. Without it they are not in the discovery.
	Secrets bool
	// Documents are discovery, OpenAPI and version, as a server has had them. May be nil:
	// they are then made from the collections.
	Documents *Documents
	// ServerVersion is told if the documents have no version, as "v1.37.0".
	ServerVersion string
	// Now is the time from which ages count; zero is the present time.
	Now time.Time
	// Warning is shown to users with each answer, as what state it is of; "" for none.
	Warning string
	Logger  logr.Logger
}

// Server answers requests for the objects of a Source as a Kubernetes API server does. It
// is an http.Handler, and safe for concurrent use.
type Server struct {
	Options
	source  Source
	infos   *request.RequestInfoFactory
	lists   chan struct{}  // one element per list
	watch   chan struct{}  // one element per watch
	replays chan struct{}  // one element per watch that reads the log
	ended   sync.WaitGroup // the ends of collections that are gone

	mu     sync.Mutex         // protects the fields below
	served map[string]*served // by the ID of the scope
	closed bool
}

const (
	maxLists   = 64
	maxWatches = 500
	maxReplays = 16
	// watchTime is how long a watch lasts at least for which a client sets no time.
	watchTime = 30 * time.Minute
)

// New returns a Server of what a source has. Close ends it.
func New(source Source, o Options) (*Server, error) {
	if o.Token == "" {
		return nil, errors.New("relay: a Server needs a token: without one, everybody who reaches it reads everything")
	}
	s := &Server{
		Options: o, source: source, served: map[string]*served{},
		infos: &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")},
		lists: make(chan struct{}, maxLists), watch: make(chan struct{}, maxWatches), replays: make(chan struct{}, maxReplays),
	}
	if s.Documents == nil {
		s.Documents = &Documents{}
	}
	clusters := sets.New[string]()
	for _, c := range source.Collections() {
		clusters.Insert(c.Scope.Cluster)
	}
	if clusters.Len() > 1 {
		return nil, fmt.Errorf("relay: the collections are of %d clusters, want one: %s", clusters.Len(), strings.Join(sets.List(clusters), ", "))
	}
	return s, nil
}

// Close ends all watches, and returns when all goroutines of the Server have ended. The
// clients of a Server that is started again go on where they were.
func (s *Server) Close() {
	s.mu.Lock()
	all := s.served
	s.served, s.closed = map[string]*served{}, true
	s.mu.Unlock()
	for _, c := range all {
		c.hub.end(store.ErrClosed)
	}
	s.ended.Wait()
}

func (s *Server) now() time.Time {
	if !s.Now.IsZero() {
		return s.Now
	}
	return time.Now()
}

// collections returns what is served of the source, without what a request cannot mean.
func (s *Server) collections() []Collection {
	return slices.DeleteFunc(slices.Clone(s.source.Collections()), func(c Collection) bool {
		return c.Scope.LabelSelector != "" || c.Scope.FieldSelector != "" || c.Scope.IsSecret() && !s.Secrets
	})
}

// best returns which of several collections of one resource answers a request: objects
// before their metadata, and then the whole of all namespaces before one. ok is false if
// none is of the namespace.
func best(collections []Collection, is func(Collection) bool, namespace string) (c Collection, ok bool) {
	rank := func(c Collection) int {
		n := 0
		if c.Scope.Form != store.Metadata {
			n += 2
		}
		if c.Scope.Namespace == "" {
			n++
		}
		return n
	}
	for _, one := range collections {
		if !is(one) || one.Scope.Namespace != "" && one.Scope.Namespace != namespace {
			continue
		}
		if !ok || rank(one) > rank(c) {
			c, ok = one, true
		}
	}
	return c, ok
}

// find returns what serves a resource of all namespaces, nil if it is not held.
func (s *Server) find(resource string) *served {
	c, ok := best(s.collections(), func(c Collection) bool { return c.Scope.Resource == resource }, "")
	if !ok {
		return nil
	}
	return s.serve(c)
}

// serve returns what serves a collection, nil if the Server is closed.
func (s *Server) serve(c Collection) *served {
	id := c.Scope.ID()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if known := s.served[id]; known != nil {
		if known.isOf(c) {
			known.note.Store(&c.Note)
			return known
		}
		// The log is the same, so clients go on where they were, or the log says no.
		s.ended.Go(func() { known.hub.end(store.ErrClosed) })
	}
	s.served[id] = newServed(s, c)
	return s.served[id]
}

// dropGone ends what the source does not have any more. What is served and not among the
// given collections may have come since these were read.
func (s *Server) dropGone(collections []Collection) {
	there := sets.New[string]()
	for _, c := range collections {
		there.Insert(c.Scope.ID())
	}
	var others []*served
	s.mu.Lock()
	for id, c := range s.served {
		if !there.Has(id) {
			others = append(others, c)
		}
	}
	s.mu.Unlock()
	for _, c := range others {
		s.dropIfGone(c)
	}
}

// dropIfGone ends one collection if the source does not have it any more.
func (s *Server) dropIfGone(c *served) {
	id := c.Scope.ID()
	if slices.ContainsFunc(s.collections(), func(there Collection) bool { return there.Scope.ID() == id }) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served[id] == c {
		delete(s.served, id)
		c.hub.cancel(store.ErrTrimmed) // at once: a watch may have asked
		s.ended.Go(func() { c.hub.end(store.ErrTrimmed) })
	}
}

type targetKey struct{}

// targetOf returns what the answer to a request is converted to, nil if it is not.
func targetOf(ctx context.Context) *target {
	t, _ := ctx.Value(targetKey{}).(*target)
	return t
}

type protobufKey struct{}

// isProtobuf reports whether the answer to a request is protobuf.
func isProtobuf(ctx context.Context) bool { return ctx.Value(protobufKey{}) != nil }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case aborted:
			s.Logger.V(1).Info("An answer was broken off", "path", r.URL.Path, "because", p.Error())
			panic(http.ErrAbortHandler)
		default:
			s.Logger.Error(fmt.Errorf("panic: %v\n%s", p, debug.Stack()), "A request could not be answered", "path", r.URL.Path)
			panic(http.ErrAbortHandler)
		}
	}()
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-cache, private")
	limited := deadlined{w, http.NewResponseController(w)}
	defer limited.begin() // the end of the answer is written behind the handler
	w = limited
	if s.isProbe(w, r) {
		return
	}
	if err := s.authenticate(r); err != nil {
		fail(w, r, err)
		return
	}
	r.Header.Del("Accept-Encoding") // compression costs more than the loopback
	if err := s.answer(w, r); err != nil {
		fail(w, r, err)
	}
}

// fail answers with an error in the form that the client asks for.
func fail(w http.ResponseWriter, r *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, scheme.Codecs.WithoutConversion(), schema.GroupVersion{Version: "v1"}, w, r)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) error {
	info, err := s.infos.NewRequestInfo(r)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if isReview(info) {
		return s.review(w, r)
	}
	if !info.IsResourceRequest {
		return s.document(w, r)
	}
	gr := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	if r.Method == http.MethodHead || info.Verb == "" { // HEAD is parsed as GET
		info.Verb = strings.ToLower(r.Method)
	}
	if info.Subresource != "" || info.Verb != "get" && info.Verb != "list" && info.Verb != "watch" {
		return &apierrors.StatusError{ErrStatus: readOnly(gr, info)}
	}
	c, err := s.holder(gr, info)
	if err != nil {
		return err
	}
	for _, text := range append(c.warnings(time.Now()), s.Warning) {
		// An error may have several lines, and a header has one.
		if header, err := utilnet.NewWarningHeader(299, "-", strings.Join(strings.Fields(text), " ")); text != "" && err == nil {
			w.Header().Add("Warning", header)
		}
	}
	return c.answer(w, r, info)
}

// readOnly is the answer to what changes something, or is not in a file.
func readOnly(gr schema.GroupResource, info *request.RequestInfo) metav1.Status {
	status := apierrors.NewMethodNotSupported(gr, info.Verb).Status()
	what := info.Verb
	if info.Subresource != "" {
		what += " " + info.Resource + "/" + info.Subresource
	}
	status.Message = "this is informctl's copy of the objects, which cannot " + what + "; ask the API server"
	return status
}

// holder returns what answers a request for objects.
func (s *Server) holder(gr schema.GroupResource, info *request.RequestInfo) (*served, error) {
	all := s.collections()
	s.dropGone(all)
	isOf := func(c Collection) bool {
		return c.groupResource() == gr
	}
	is := func(c Collection) bool { return isOf(c) && c.Scope.Kind.Version == info.APIVersion }
	if strings.Contains(info.Path, "/"+info.APIVersion+"/watch/") { // deprecated
		return nil, notThere()
	}
	namespaced, known := s.namespaced(gr, info.APIVersion)
	switch {
	case !known && s.Documents.isEmpty() && len(all) == 0:
		return nil, unavailable(errors.New("nothing was listed yet"))
	case !known && s.Documents.isStale(gr.Group, info.APIVersion):
		return nil, unavailable(errors.New("the server did not say what is there"))
	// Nobody knows what the server has, or it was defined since the documents were read.
	case !known && (s.Documents.isEmpty() || s.isDefined(gr, info.APIVersion)):
		return nil, apierrors.NewForbidden(gr, info.Name, errors.New("informctl does not hold it"))
	case !known:
		return nil, notThere()
	case !namespaced && info.Namespace != "" && !isNamespace(gr, info), namespaced && info.Verb == "get" && info.Namespace == "":
		return nil, notThere() // there is no such path
	case !namespaced:
		info.Namespace = ""
	}
	c, ok := best(all, is, info.Namespace)
	if !ok {
		why := "informctl does not hold it"
		if slices.ContainsFunc(all, isOf) {
			why = "informctl holds another version of it, or other namespaces"
		}
		return nil, apierrors.NewForbidden(gr, info.Name, errors.New(why))
	}
	if out := s.serve(c); out != nil {
		return out, nil
	}
	return nil, unavailable(store.ErrClosed)
}

// isNamespace reports whether a request is for a namespace, of which the parser of paths
// says that it is in itself.
func isNamespace(gr schema.GroupResource, info *request.RequestInfo) bool {
	return gr == corev1.Resource("namespaces") && info.Name == info.Namespace
}

// notThere is the answer for a path that the API server would not have either.
func notThere() error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "", 0, false)
}

// answer has the handlers of the API server answer a request. Where a list is to be a
// Table, or metadata, the handlers are asked for a list as it is: it converts itself
// while it is written.
func (s *served) answer(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) error {
	slots := s.server.lists
	if info.Verb == "watch" {
		slots = s.server.watch
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	default:
		return apierrors.NewTooManyRequests(fmt.Sprintf("there are %d others", cap(slots)), 1)
	}
	ctx := request.WithReceivedTimestamp(request.WithRequestInfo(r.Context(), info), time.Now())
	r = r.WithContext(ctx)
	media, _, err := negotiation.NegotiateOutputMediaType(r, s.plain.Serializer, s.plain)
	if err != nil {
		return err
	}
	if media.Accepted.MediaType == runtime.ContentTypeProtobuf {
		ctx = context.WithValue(ctx, protobufKey{}, true)
		r = r.WithContext(ctx)
	}
	scope := s.plain
	if media.Convert != nil {
		t := &target{kind: *media.Convert}
		if t.isTable() {
			if t.table, err = tableOptions(r); err != nil {
				return err
			}
			t.printer = s.printer()
		}
		r = r.WithContext(context.WithValue(ctx, targetKey{}, t))
		if info.Verb == "list" {
			r = r.Clone(r.Context())
			r.Header.Set("Accept", media.Accepted.MediaType)
			scope = s.other
		}
	}
	if info.Verb == "get" {
		handlers.GetResource(s, scope)(w, r)
		return nil
	}
	handlers.ListResource(s, s, scope, false, watchTime)(w, r)
	return nil
}

// tableOptions returns the parameters of a request for a Table.
func tableOptions(r *http.Request) (*metav1.TableOptions, error) {
	o := &metav1.TableOptions{}
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(r.URL.Query(), metav1.SchemeGroupVersion, o); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if errs := validation.ValidateTableOptions(o); len(errs) > 0 {
		return nil, apierrors.NewBadRequest("Unable to convert to Table as requested: " + errs.ToAggregate().Error())
	}
	return o, nil
}

// writePatience is how long a client may take for what is written at once.
var writePatience = 30 * time.Second

// deadlined gives each write its time: a client that does not read ends its request.
type deadlined struct {
	http.ResponseWriter
	control *http.ResponseController
}

// begin begins the time of what is written next.
func (w deadlined) begin() {
	// An error means that the writer has no deadlines, as in a test.
	_ = w.control.SetWriteDeadline(time.Now().Add(writePatience))
}

// within gives do its time. There is no deadline behind it: HTTP/2 ends a request whose
// deadline has passed, also if nothing is written, and the next write may be long in
// coming.
func (w deadlined) within(do func() error) error {
	w.begin()
	err := do()
	if err == nil {
		_ = w.control.SetWriteDeadline(time.Time{})
	}
	return err
}

// Write implements http.ResponseWriter.
func (w deadlined) Write(p []byte) (n int, err error) {
	err = w.within(func() error { n, err = w.ResponseWriter.Write(p); return err })
	return n, err
}

// Flush implements http.Flusher.
func (w deadlined) Flush() { _ = w.within(w.control.Flush) }

// Hijack implements http.Hijacker, for WebSockets.
func (w deadlined) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.control.Hijack()
	if err != nil {
		return nil, nil, err
	}
	conn = deadlinedConn{conn}
	return conn, bufio.NewReadWriter(rw.Reader, bufio.NewWriter(conn)), nil
}

// deadlinedConn does for a hijacked connection what deadlined does for an answer.
type deadlinedConn struct{ net.Conn }

func (c deadlinedConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writePatience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// Unwrap is for http.ResponseController.
func (w deadlined) Unwrap() http.ResponseWriter { return w.ResponseWriter }
