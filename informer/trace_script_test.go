package informer_test

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/internal/fakeapi"
)

// A script consists of lines of commands. After each command, the visible state of the
// informer is recorded. The first lines may describe the server and the informer:
//
//	server WORDS         nostream: no streamed lists; nobookmarks; pages: no streams,
//	                     and pages of two; opaque: resource versions without an order
//	resync DURATION      the informer's resync period
//	transform KIND       strip, label, rename, or fail: an error for the value "bad"
//
// These commands have only the described effect:
//
//	put NAME VALUE       create or update; a name may have a namespace, as in other/a,
//	                     or none, as in /a; without a slash it is "default"
//	fill NUMBER          create so many objects
//	recreate NAME VALUE  delete and create under a new UID
//	drop NAME            delete
//	burst CHANGES        several, separated by ";", that reach the store at once
//	bad NAME             put NAME bad, for which the transform fails
//	bookmark             advance the resource version and wait for the bookmark: for a
//	                     minute, and some seconds if a watch ends and begins meanwhile
//	wait DURATION        let time pass
//	handler NAME [RESYNC]  add a handler; again, after it was removed
//	remove NAME          remove it, even if it was removed before
//	block NAME           the handler does not return from its next call
//	unblock NAME         end block
//	index NAME=KIND ...  add index functions; see indexFunc
//	hold                 the server does not answer lists: before run, or in a gap
//	release              end hold
//	stop                 end the context, before run
//	store NAME VALUE     write to the indexer, of an informer that never runs
//	unstore NAME         delete from it
//	run                  start the informer
//
// These are breaks, each followed by five minutes:
//
//	close                the server closes its watches
//	expire               the same, and it forgets the history
//	fail CODE            the same, and the next request for a watch gets this status
//	instream CODE        the same, and the next watch gets this error event
//	faillist CODE        the same, and the next list in pages or probe gets this status
//	down DURATION        the server is away for a while
//	gap COMMANDS         the server is away during these commands, separated by ";":
//	                     changes, handlers and breaks
//
// These are for our informer only, because client-go's does not survive them:
//
//	mark                 remember the present
//	rewind               the server goes back to it
var commands map[string]func(s *subject, args []string)

func init() {
	commands = map[string]func(s *subject, args []string){
		"put": func(s *subject, args []string) { s.put(args[0], args[1]) },
		"fill": func(s *subject, args []string) {
			n, err := strconv.Atoi(args[0])
			for i := range n {
				s.put(fmt.Sprintf("o-%04d", i), "1")
			}
			if err != nil {
				s.Fatal(err)
			}
		},
		"bad":      func(s *subject, args []string) { s.put(args[0], "bad") },
		"drop":     func(s *subject, args []string) { s.drop(args[0]) },
		"recreate": func(s *subject, args []string) { s.drop(args[0]); s.put(args[0], args[1]) },
		"bookmark": func(s *subject, _ []string) { s.server.Advance(); waitFor(time.Minute + 10*time.Second) },
		"wait":     func(s *subject, args []string) { waitFor(s.duration(args[0])) },
		"handler":  (*subject).addHandler,
		"remove":   func(s *subject, args []string) { s.removeHandler(args[0]) },
		"block":    func(s *subject, args []string) { s.listener(args[0]).block() },
		"unblock":  func(s *subject, args []string) { s.listener(args[0]).unblock() },
		"index":    (*subject).addIndexers,
		"hold":     func(s *subject, _ []string) { s.held = true; s.server.Hold() },
		"release":  func(s *subject, _ []string) { s.held = false; s.server.Release() },
		"stop":     func(s *subject, _ []string) { s.stop() },
		"store":    func(s *subject, args []string) { s.store(s.inf.GetIndexer().Update, args[0], args[1]) },
		"unstore":  func(s *subject, args []string) { s.store(s.inf.GetIndexer().Delete, args[0], "") },
		"run":      func(s *subject, _ []string) { s.run() },
		"close":    func(s *subject, _ []string) { s.server.CloseWatches() },
		"expire":   func(s *subject, _ []string) { s.expire() },
		"fail":     func(s *subject, args []string) { s.server.FailWatch(s.failure(args[0])); s.server.CloseWatches() },
		"instream": func(s *subject, args []string) {
			s.server.FailWatch(fakeapi.InStream(s.failure(args[0])))
			s.server.CloseWatches()
		},
		"faillist": func(s *subject, args []string) { s.server.FailList(s.failure(args[0])); s.server.CloseWatches() },
		"down":     func(s *subject, args []string) { s.server.Down(); waitFor(s.duration(args[0])); s.server.Up() },
		"mark":     func(s *subject, _ []string) { s.marked = s.present.clone(s.server.RV()) },
		"rewind":   func(s *subject, _ []string) { s.rewind() },
	}
}

// settling is long enough for every backoff of both informers, and for a bookmark.
const settling = 5 * time.Minute

func isBreak(command string) bool {
	return slices.Contains([]string{
		"close", "expire", "fail", "instream", "faillist", "down", "gap", "bad", "rewind",
	}, verb(command))
}

func verb(command string) string {
	name, _, _ := strings.Cut(command, " ")
	return name
}

// do executes one line of a script.
func (s *subject) do(command string) {
	s.Helper()
	_, rest, _ := strings.Cut(command, " ")
	switch verb(command) {
	case "gap":
		s.server.Down()
		s.each(rest)
		s.server.Up()
	case "burst":
		open := make(chan struct{})
		s.gate.Store(&open)
		s.each(rest)
		synctest.Wait() // an index function blocks the first change, so the others queue
		s.gate.Store(nil)
		close(open)
	default:
		s.obey(command)
	}
	switch {
	case !isBreak(command) || verb(command) == "bad" && !s.started:
		// A watch that has reached its timeout is opened again after a probe, and a
		// script may make the probe fail.
		for n := 0; n < 20 && s.started && s.server.Watches() == 0; n++ {
			waitFor(100 * time.Millisecond)
		}
	case s.held: // a streamed list would end at its timeout
		waitFor(time.Minute)
	default:
		s.broken = true
		waitFor(settling)
	}
	synctest.Wait()
}

func (s *subject) each(commands string) {
	for command := range strings.SplitSeq(commands, ";") {
		s.obey(command)
	}
}

func (s *subject) obey(command string) {
	s.Helper()
	words := strings.Fields(command)
	f := commands[words[0]]
	if f == nil {
		s.Fatalf("unknown command %q", command)
	}
	f(s, words[1:])
}

// collection contains the objects of the server and their form for handlers.
type collection struct {
	rv      string
	objects map[string]*corev1.ConfigMap // the server's objects by name
	views   map[string]string            // the last form that a client accepts, by name
}

func (c collection) clone(rv string) collection {
	return collection{rv: rv, objects: maps.Clone(c.objects), views: maps.Clone(c.views)}
}

// configMap returns an object of a script. Without a slash in the name, its namespace is
// "default".
func configMap(name, value string) *corev1.ConfigMap {
	namespace, inNamespace, found := strings.Cut(name, "/")
	if !found {
		namespace, inNamespace = "default", name
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: inNamespace}, Data: map[string]string{"v": value},
	}
}

func (s *subject) put(name, value string) {
	obj := configMap(name, value)
	if s.transform != "" {
		obj.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	}
	rv, err := s.server.Update(obj)
	if err != nil {
		rv, err = s.server.Create(obj)
	}
	if err != nil {
		s.Fatal(err)
	}
	obj.ResourceVersion = rv
	s.present.objects[name] = obj
	is, ok := s.view(obj)
	if !ok {
		if !s.started { // no earlier state was visible
			delete(s.present.views, name)
		}
		return
	}
	if was, there := s.present.views[name]; there {
		s.history = append(s.history, "update "+was+" "+is)
	} else {
		s.history = append(s.history, "add "+is)
	}
	s.present.views[name] = is
}

func (s *subject) drop(name string) {
	rv, err := s.server.Delete(cache.MetaObjectToName(configMap(name, "")).String())
	if err != nil {
		return // it does not exist
	}
	obj := s.present.objects[name].DeepCopy()
	obj.ResourceVersion = rv
	delete(s.present.objects, name)
	if _, there := s.present.views[name]; there {
		if is, ok := s.view(obj); ok {
			s.history = append(s.history, "delete "+is)
		}
	}
	delete(s.present.views, name)
}

// view returns the form of an object that handlers receive; false if its transform fails.
func (s *subject) view(obj *corev1.ConfigMap) (string, bool) {
	if s.transform == "" {
		return show(obj), true
	}
	out, err := transforms[s.transform](obj.DeepCopy())
	return show(out), err == nil
}

func (s *subject) expire() {
	if err := s.server.Compact(s.server.RV()); err != nil {
		s.Fatal(err)
	}
	s.server.CloseWatches()
}

func (s *subject) rewind() {
	if err := s.server.Rewind(s.marked.rv); err != nil {
		s.Fatal(err)
	}
	s.present = s.marked.clone("")
	for _, l := range s.listeners {
		l.recorder.Rewound()
	}
}

func (s *subject) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.Fatal(err)
	}
	return d
}

// failure returns the error of a request.
func (s *subject) failure(word string) error {
	s.broken = true
	switch word {
	case "410":
		return apierrors.NewResourceExpired("on purpose")
	case "eof":
		return io.EOF
	case "empty":
		return fakeapi.ErrCloseAtOnce
	}
	code, err := strconv.Atoi(word)
	if err != nil {
		s.Fatal(err)
	}
	return apierrors.NewGenericServerResponse(code, "get", corev1.Resource("configmaps"), "", "on purpose", 0, true)
}

// run starts the informer. If requests fail before, the first list takes a while.
func (s *subject) run() {
	s.started = true
	go func() {
		defer close(s.done)
		s.inf.RunWithContext(s.ctx)
	}()
	if s.broken {
		waitFor(settling)
	}
}

func (s *subject) addHandler(args []string) {
	l := s.listener(args[0])
	if l.there {
		return
	}
	l.earlier = append(l.earlier, l.take()...)
	wanted := time.Duration(0)
	if len(args) > 1 {
		wanted = s.duration(args[1])
	}
	if l.handle != nil {
		l.recorder.Start(l.owed)
	}
	h, err := s.inf.AddEventHandlerWithOptions(l, cache.HandlerOptions{Logger: &klog.Logger{}, ResyncPeriod: &wanted})
	if s.try("AddEventHandler", err); err != nil {
		return
	}
	if 0 < wanted && wanted < time.Second { // client-go's rules
		wanted = time.Second
	}
	l.recorder.Registered(h)
	l.handle, l.there, l.late = h, true, s.started
	l.times++
	if !s.started && 0 < wanted && wanted < s.check {
		s.check = wanted
	}
	l.wanted = wanted
	synctest.Wait() // the result of an immediate removal would be random
}

func (s *subject) removeHandler(name string) {
	l := s.listener(name)
	s.try("RemoveEventHandler", s.inf.RemoveEventHandler(l.handle))
	// Like cache.ShutDownEventHandler, which client-go v0.36 lacks.
	if l.handle != nil && l.open == nil {
		<-l.handle.(interface{ ShutdownChan() <-chan struct{} }).ShutdownChan()
	}
	l.there = false
	synctest.Wait()
	l.unblock() // it receives nothing after its present call
	synctest.Wait()
	if l.handle != nil {
		l.recorder.End()
	}
}

// store writes to the indexer, like tests that need no server.
func (s *subject) store(write func(any) error, name, value string) {
	obj := configMap(name, value)
	obj.ResourceVersion = s.server.Advance()
	s.try("write to the indexer", write(obj))
}

func (s *subject) addIndexers(args []string) {
	indexers := cache.Indexers{}
	for _, arg := range args {
		name, kind, _ := strings.Cut(arg, "=")
		indexers[name] = s.indexFunc(kind)
	}
	s.try("AddIndexers", s.inf.AddIndexers(indexers))
}

// serverOptions reads the words of a server line.
func serverOptions(words string) (opts fakeapi.Options, err error) {
	for _, word := range strings.Fields(words) {
		switch word {
		case "nostream":
			opts.NoWatchList = true
		case "nobookmarks":
			opts.NoBookmarks = true
		case "pages":
			opts.NoWatchList, opts.MaxPage = true, 2
		case "opaque":
			opts.RVPrefix = "v"
		default:
			return opts, fmt.Errorf("no such server: %q", word)
		}
	}
	return opts, nil
}
