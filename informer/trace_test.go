package informer_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store/bolt"
)

// The drop-in proof (promise 7): one script of events goes through client-go's
// informer and through ours, and what handlers are told, what the store and its
// indices hold and when the informer has synced is compared after every step.
//
// Where ours differs on purpose, the package documentation has a row, and the
// comparison says so here:
//
//   - sameButUnchanged: client-go repeats every object after a new list, ours
//     tells what differs.
//   - foldOnly: client-go lists after most failures of a watch, ours resumes. The
//     one tells the last state of what happened meanwhile, the other each change.
//     Both must come to the same state, and neither may tell of an object that
//     its handler does not have, or add one twice.

// A script is lines of these commands, each followed by a look at both.
//
//	resync DURATION      the informer's own period; the first line
//	put NAME VALUE       create or update
//	recreate NAME VALUE  delete and create under a new UID
//	drop NAME            delete
//	bookmark             let the resource version go on, and a minute pass
//	wait DURATION        let time pass
//	handler NAME [RESYNC]  add a handler
//	remove NAME          remove it
//	index                add an index function
//	close                the server closes its watches
//	expire               and forgets the history
//	gap NAME VALUE       close, then put before anybody can watch again
//	expiredgap NAME VALUE  the same, and the history is forgotten
//	fail CODE            close, and the next request for a watch gets this status
//	instream CODE        close, and the next watch this error event
//	down DURATION        the server is away for a while
type subject struct {
	*testing.T
	server   *fakeapi.Server
	inf      cache.SharedIndexInformer
	handlers map[string]*log
	handles  map[string]cache.ResourceEventHandlerRegistration
	folds    map[string]map[string]string // per handler: key -> last told
	faults   []string
}

// step is what is compared after a command.
type step struct {
	Command string
	Told    map[string][]string
	Folded  map[string]map[string]string
	Store   []string
	Index   map[string][]string
	Synced  bool
}

var breaks = []string{"close", "expire", "gap", "expiredgap", "fail", "instream", "down"}

func isBreak(command string) bool {
	name, _, _ := strings.Cut(command, " ")
	return slices.Contains(breaks, name)
}

type makeInformer func(t *testing.T, lw cache.ListerWatcher, resync time.Duration, indexers cache.Indexers) (cache.SharedIndexInformer, func())

func clientGo(_ *testing.T, lw cache.ListerWatcher, resync time.Duration, indexers cache.Indexers) (cache.SharedIndexInformer, func()) {
	return cache.NewSharedIndexInformer(lw, &corev1.ConfigMap{}, resync, indexers), func() {}
}

func onMem(t *testing.T, lw cache.ListerWatcher, resync time.Duration, indexers cache.Indexers) (cache.SharedIndexInformer, func()) {
	inf, err := informer.New(lw, &corev1.ConfigMap{}, informer.Options{ResyncPeriod: resync, Indexers: indexers})
	if err != nil {
		t.Fatal(err)
	}
	return inf, func() {}
}

func onBolt(dir string) makeInformer {
	return func(t *testing.T, lw cache.ListerWatcher, resync time.Duration, indexers cache.Indexers) (cache.SharedIndexInformer, func()) {
		n, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		db, err := bolt.Open(filepath.Join(dir, strconv.Itoa(len(n))+".db"), bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		inf, err := informer.New(lw, &corev1.ConfigMap{}, informer.Options{Backend: db, ResyncPeriod: resync, Indexers: indexers})
		if err != nil {
			t.Fatal(err)
		}
		return inf, func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// play runs a script in a bubble and returns what was seen.
func play(t *testing.T, script []string, construct makeInformer) (steps []step, faults []string) {
	synctest.Test(t, func(t *testing.T) {
		s := &subject{
			T: t, server: fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{}),
			handlers: map[string]*log{}, handles: map[string]cache.ResourceEventHandlerRegistration{},
			folds: map[string]map[string]string{},
		}
		resync := time.Duration(0)
		if period, ok := strings.CutPrefix(script[0], "resync "); ok {
			resync, script = s.duration(period), script[1:]
		}
		inf, closeBackend := construct(t, s.server, resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, "v": byValue(new(bool), false)})
		s.inf = inf
		if err := inf.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
			t.Fatal(err)
		}
		started := false
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
		done := make(chan struct{})
		for _, command := range script {
			if command == "run" {
				started = true
				go func() {
					defer close(done)
					inf.RunWithContext(ctx)
				}()
			} else {
				s.do(command)
			}
			synctest.Wait()
			steps = append(steps, s.look(command))
		}
		faults = s.faults
		cancel()
		if started {
			<-done
		}
		closeBackend()
	})
	return steps, faults
}

func (s *subject) put(name, value string) {
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"v": value}}
	if _, err := s.server.Update(obj); err == nil {
		return
	}
	if _, err := s.server.Create(obj); err != nil {
		s.Fatal(err)
	}
}

func (s *subject) do(command string) {
	s.Helper()
	words := strings.Fields(command)
	arg := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	settle := func() { waitFor(2 * time.Minute) }
	switch words[0] {
	case "put":
		s.put(arg(1), arg(2))
	case "recreate":
		_, _ = s.server.Delete("default/" + arg(1))
		s.put(arg(1), arg(2))
	case "drop":
		_, _ = s.server.Delete("default/" + arg(1))
	case "bookmark":
		s.server.Advance()
		waitFor(time.Minute + time.Second)
	case "wait":
		waitFor(s.duration(arg(1)))
	case "handler":
		s.addHandler(arg(1), s.duration(arg(2)))
	case "remove":
		if h := s.handles[arg(1)]; h != nil {
			if err := s.inf.RemoveEventHandler(h); err != nil {
				s.Error(err)
			}
			delete(s.handles, arg(1))
			delete(s.handlers, arg(1))
			delete(s.folds, arg(1))
		}
	case "index":
		_ = s.inf.AddIndexers(cache.Indexers{"late": byValue(new(bool), false)})
	case "close":
		s.server.CloseWatches()
		settle()
	case "expire":
		s.expire()
		settle()
	case "gap", "expiredgap":
		s.server.Down()
		s.put(arg(1), arg(2))
		if words[0] == "expiredgap" {
			s.expire()
		}
		s.server.Up()
		settle()
	case "fail", "instream":
		code, err := strconv.Atoi(arg(1))
		if err != nil {
			s.Fatal(err)
		}
		failure := error(apierrors.NewGenericServerResponse(code, "get", corev1.Resource("configmaps"), "", "on purpose", 0, true))
		if code == 410 {
			failure = apierrors.NewResourceExpired("on purpose")
		}
		if words[0] == "instream" {
			failure = fakeapi.InStream(failure)
		}
		s.server.FailWatch(failure)
		s.server.CloseWatches()
		settle()
	case "down":
		s.server.Down()
		waitFor(s.duration(arg(1)))
		s.server.Up()
		settle()
	default:
		s.Fatalf("unknown command %q", command)
	}
}

func (s *subject) expire() {
	if err := s.server.Compact(s.server.RV()); err != nil {
		s.Fatal(err)
	}
	s.server.CloseWatches()
}

func (s *subject) duration(text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		s.Fatal(err)
	}
	return d
}

func (s *subject) addHandler(name string, resync time.Duration) {
	if s.handlers[name] != nil {
		return
	}
	l := &log{}
	h, err := s.inf.AddEventHandlerWithResyncPeriod(l, resync)
	if err != nil {
		s.Error(err)
		return
	}
	s.handlers[name], s.handles[name], s.folds[name] = l, h, map[string]string{}
}

// look collects what a step has brought, and checks each handler's own story.
func (s *subject) look(command string) step {
	out := step{Command: command, Told: map[string][]string{}, Folded: map[string]map[string]string{}, Index: map[string][]string{}, Synced: s.inf.HasSynced()}
	for name, l := range s.handlers {
		lines := l.take()
		for _, line := range lines {
			s.fold(name, line)
		}
		out.Told[name], out.Folded[name] = lines, maps.Clone(s.folds[name])
	}
	indexer := s.inf.GetIndexer()
	for _, obj := range indexer.List() {
		out.Store = append(out.Store, describe(obj))
	}
	slices.Sort(out.Store)
	for name := range indexer.GetIndexers() {
		for _, value := range indexer.ListIndexFuncValues(name) {
			keys, err := indexer.IndexKeys(name, value)
			if err != nil {
				s.Error(err)
			}
			out.Index[name+"="+value] = keys
		}
	}
	return out
}

var toldLine = regexp.MustCompile(`^(add|initial|update|delete|delete tombstone) (\S+)(?: (\S+))?$`)

// fold checks the named guarantees that hold for every handler: no update or
// deletion before the add, one add, and old is what was delivered last.
func (s *subject) fold(handler, line string) {
	m := toldLine.FindStringSubmatch(line)
	if m == nil {
		s.faults = append(s.faults, "unknown line "+line)
		return
	}
	key, _, _ := strings.Cut(m[2], "@")
	state, there := s.folds[handler][key]
	fault := func(format string, args ...any) {
		s.faults = append(s.faults, handler+": "+line+": "+fmt.Sprintf(format, args...))
	}
	switch {
	case m[1] == "add" || m[1] == "initial":
		if there {
			fault("there already")
		}
		s.folds[handler][key] = m[2]
	case !there:
		fault("not there")
	case m[1] == "update":
		if state != m[2] {
			fault("last delivered was %s", state)
		}
		s.folds[handler][key] = m[3]
	default:
		delete(s.folds[handler], key)
	}
}

// unchangedUpdate is an update to the same resource version.
var unchangedUpdate = regexp.MustCompile(`^update (\S+) (\S+)$`)

func sameButUnchanged(lines []string) []string {
	var out []string
	for _, line := range lines {
		if m := unchangedUpdate.FindStringSubmatch(line); m == nil || m[1] != m[2] {
			out = append(out, line)
		}
	}
	return out
}

// normalized brings a step into the form in which both informers agree.
func (st step) normalized() step {
	if isBreak(st.Command) {
		st.Told = nil // foldOnly
		return st
	}
	if strings.HasPrefix(st.Command, "wait") || strings.HasPrefix(st.Command, "bookmark") {
		for name, lines := range st.Told { // a resync's order is the store's
			lines = slices.Clone(lines)
			slices.Sort(lines)
			st.Told[name] = lines
		}
		return st
	}
	told := map[string][]string{}
	for name, lines := range st.Told {
		told[name] = sameButUnchanged(lines)
		if strings.HasPrefix(st.Command, "handler") || st.Command == "run" { // adds come in no order
			slices.Sort(told[name])
		}
	}
	st.Told = told
	return st
}

// differences plays a script on client-go's informer and on ours.
func differences(t *testing.T, script []string, ours map[string]makeInformer) string {
	want, wantFaults := play(t, script, clientGo)
	var out strings.Builder
	if len(wantFaults) > 0 {
		fmt.Fprintf(&out, "client-go breaks a guarantee: %s\n", strings.Join(wantFaults, "; "))
	}
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		got, faults := play(t, script, ours[name])
		for _, fault := range faults {
			fmt.Fprintf(&out, "%s: %s\n", name, fault)
		}
		for i := range want {
			if diff := cmp.Diff(want[i].normalized(), got[i].normalized()); diff != "" {
				fmt.Fprintf(&out, "%s, step %d, %s (-client-go +ours):\n%s", name, i, want[i].Command, diff)
				break
			}
		}
	}
	return out.String()
}

var scripts = flag.Int("informer.scripts", 500, "how many generated scripts to compare with client-go's informer")

// TestTracesGenerated compares generated scripts. The seed of a failure is
// printed by rapid, with the smallest script that shows it.
func TestTracesGenerated(t *testing.T) {
	dir := t.TempDir()
	if err := flag.Set("rapid.checks", strconv.Itoa(*scripts)); err != nil {
		t.Fatal(err)
	}
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		script := drawScript(rt)
		var diff string
		ours := map[string]makeInformer{"mem": onMem, "bolt": onBolt(filepath.Join(dir))}
		diff = differences(t, script, ours)
		if diff != "" {
			rt.Fatalf("script:\n%s\n%s", strings.Join(script, "\n"), diff)
		}
	})
}

func drawScript(rt *rapid.T) []string {
	name := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	value := rapid.SampledFrom([]string{"1", "2", "3"})
	handler := rapid.SampledFrom([]string{"h1", "h2", "h3"})
	resyncs := rapid.Bool().Draw(rt, "resyncs")
	var script []string
	if resyncs {
		script = append(script, "resync "+rapid.SampledFrom([]string{"10s", "30s"}).Draw(rt, "period"))
	}
	for range rapid.IntRange(0, 4).Draw(rt, "before") {
		script = append(script, "put "+name.Draw(rt, "name")+" "+value.Draw(rt, "value"))
	}
	if resyncs {
		script = append(script, "handler h1 10s", "handler h2 0s", "handler h3 20s", "wait 1ms")
	} else {
		script = append(script, "handler h1")
	}
	script = append(script, "run")
	commands := []string{"put", "put", "put", "drop", "recreate", "handler", "remove", "index", "bookmark"}
	if resyncs {
		commands = []string{"put", "put", "drop", "recreate", "wait"}
	} else {
		commands = append(commands, breaks...)
	}
	for range rapid.IntRange(1, 12).Draw(rt, "steps") {
		command := rapid.SampledFrom(commands).Draw(rt, "command")
		switch command {
		case "put", "recreate", "gap", "expiredgap":
			command += " " + name.Draw(rt, "name") + " " + value.Draw(rt, "value")
		case "drop":
			command += " " + name.Draw(rt, "name")
		case "handler", "remove":
			command += " " + handler.Draw(rt, "handler")
		case "fail", "instream":
			command += " " + rapid.SampledFrom([]string{"410", "429", "500", "503"}).Draw(rt, "code")
		case "wait":
			command += " 10s"
		case "down":
			command += " 30s"
		}
		script = append(script, command)
	}
	return script
}

// TestTraces compares the scripts of testdata, whose traces a reviewer can read:
// each file has the script and what handlers of our informer are told.
func TestTraces(t *testing.T) {
	files, err := filepath.Glob("testdata/traces/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no traces: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			script := strings.FieldsFunc(string(archive.Files[0].Data), func(r rune) bool { return r == '\n' })
			dir := t.TempDir()
			if diff := differences(t, script, map[string]makeInformer{"mem": onMem, "bolt": onBolt(dir)}); diff != "" {
				t.Error(diff)
			}
			steps, _ := play(t, script, onBolt(dir))
			var told strings.Builder
			for _, s := range steps {
				fmt.Fprintf(&told, "> %s\n", s.Command)
				for _, name := range slices.Sorted(maps.Keys(s.Told)) {
					for _, line := range s.Told[name] {
						fmt.Fprintf(&told, "%s: %s\n", name, line)
					}
				}
			}
			golden(t, file, archive, told.String())
		})
	}
}
