package durable_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/internal/resume"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// messages collects what is logged.
type messages struct {
	mu    sync.Mutex
	lines []string
}

func (m *messages) logger() klog.Logger {
	return funcr.New(func(_, args string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.lines = append(m.lines, args)
	}, funcr.Options{})
}

// with returns the lines that contain a text, since the last call.
func (m *messages) with(text string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := slices.DeleteFunc(m.lines, func(line string) bool { return !strings.Contains(line, text) })
	m.lines = nil
	return found
}

// TestErrorOfSharedIsRepeated checks that an error that lasts is logged again and again,
// ever more rarely, that Status has it, and that its end is logged.
func TestErrorOfSharedIsRepeated(t *testing.T) {
	inBubble(t, func(w *world) {
		var m messages
		w.logger = m.logger()
		shared := w.shared()
		w.put("a", "owner-a")
		l := w.start(1).begin()
		w.pass(time.Minute)
		for range 2 {
			shared.fail(errors.New("no rights"))
			w.put("a", "owner-a")
			w.pass(2 * time.Hour)
			// After 0, 1, 3, 7, 15, 31 and 63 minutes; the next one is an hour later.
			got := m.with("What a consumer shares could not be read or written")
			if len(got) != 7 || !strings.Contains(got[6], "no rights") || !strings.Contains(got[6], `"consumer"="test"`) {
				t.Errorf("logged %q, want 7 times the error", got)
			}
			if s := l.consumer.Status(); !strings.Contains(s.SharedError, "no rights") {
				t.Errorf("status %+v", s)
			}
			shared.fail(nil)
			w.pass(time.Minute)
			if got := m.with("What a consumer shares is read and written again"); len(got) != 1 {
				t.Errorf("logged %q, want the end of the error once", got)
			}
			if s := l.consumer.Status(); s.SharedError != "" {
				t.Errorf("status %+v", s)
			}
		}
		l.end()
	})
}

// TestMessages checks that a consumer logs with the logger of its informers' context, and
// names their resource.
func TestMessages(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "owner-a")
		l := w.start(1).begin()
		w.pass(time.Minute)
		l.end()
		var m messages
		w.logger = m.logger()
		w.transform = "2"
		l = w.start(1).begin()
		w.pass(time.Minute)
		id := l.consumer.Status().Scopes[0].ID
		l.end()
		got := m.with("")
		if !slices.ContainsFunc(got, func(line string) bool {
			return strings.Contains(line, "A consumer receives everything") &&
				strings.Contains(line, `"consumer"="test" "resource"="configmaps" "because"=`)
		}) {
			t.Errorf("logged:\n%s", strings.Join(got, "\n"))
		}
		for _, line := range got {
			if strings.Contains(line, id) {
				t.Errorf("the ID of the scope is logged: %s", line)
			}
		}
	})
}

// TestRightsOfOperator checks that the Role of the operator's manifest allows what
// InCluster asks for, at the first start and after a failover.
func TestRightsOfOperator(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "deploy", "operator", "operator.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var allowed []string
	for document := range strings.SplitSeq(string(b), "\n---\n") {
		var role rbacv1.Role
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			if role.Kind == "Role" && slices.Contains(rule.Resources, "configmaps") && len(rule.ResourceNames) == 0 {
				allowed = append(allowed, rule.Verbs...)
			}
		}
	}
	inBubble(t, func(w *world) {
		shared := w.shared()
		w.put("a", "owner-a")
		l := w.start(1).begin()
		standby, elected := w.replica().standby()
		w.pass(time.Minute)
		l.dies(shared)
		close(elected)
		w.pass(time.Minute)
		standby.end()
		used := map[string]bool{}
		for _, a := range shared.Actions() {
			used[a.GetVerb()] = true
			if !slices.Contains(allowed, a.GetVerb()) {
				t.Errorf("InCluster needs %s, and the manifest allows %q", a.GetVerb(), allowed)
			}
		}
		if len(used) != 3 {
			t.Errorf("it has used %v, want get, create and patch", used)
		}
	})
}

// fullLedger is a backend whose ledger cannot be written while it is full.
type fullLedger struct {
	*bolt.DB
	isFull atomic.Bool
}

func (f *fullLedger) SetLedger(ctx context.Context, name string, changes map[string][]byte) error {
	if f.isFull.Load() {
		return errors.New("no space")
	}
	return f.DB.SetLedger(ctx, name, changes)
}

// TestErrorOfLedgerIsRepeated checks the same of a ledger that cannot be written.
func TestErrorOfLedgerIsRepeated(t *testing.T) {
	inBubble(t, func(w *world) {
		var m messages
		var ledger fullLedger
		w.logger = m.logger()
		w.ledger = func(db *bolt.DB) store.Backend {
			ledger.DB = db
			return &ledger
		}
		w.put("a", "owner-a")
		l := w.start(1).begin()
		w.pass(time.Minute)
		ledger.isFull.Store(true)
		w.put("a", "owner-a")
		w.pass(10 * time.Minute)
		// After 0, 1, 3 and 7 minutes.
		if got := m.with("The place of a consumer could not be written"); len(got) != 4 {
			t.Errorf("logged %q, want 4 times the error", got)
		}
		ledger.isFull.Store(false)
		w.pass(time.Minute)
		if got := m.with("The place of a consumer is written again"); len(got) != 1 {
			t.Errorf("logged %q, want the end of the error once", got)
		}
		l.end()
	})
}

// stuckHandler is a handler of a consumer whose informer can write nothing while it is
// stuck.
type stuckHandler struct {
	resume.Handler
	isStuck *atomic.Bool
}

func (s stuckHandler) Opened(feed resume.Feed) { s.Handler.Opened(stuckFeed{feed, s.isStuck}) }

type stuckFeed struct {
	resume.Feed
	isStuck *atomic.Bool
}

// slowHandler is a stuckHandler whose informer writes slowly when it is not stuck.
type slowHandler struct {
	resume.Handler
	isStuck *atomic.Bool
	flushed *atomic.Int64 // how often something was written
}

func (s slowHandler) Opened(feed resume.Feed) {
	s.Handler.Opened(slowFeed{stuckFeed{feed, s.isStuck}, s.flushed})
}

type slowFeed struct {
	stuckFeed
	flushed *atomic.Int64
}

func (s slowFeed) Flush(ctx context.Context) error {
	slow := time.NewTimer(200 * time.Millisecond)
	defer slow.Stop()
	select {
	case <-slow.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := s.stuckFeed.Flush(ctx); err != nil {
		return err
	}
	s.flushed.Add(1)
	return nil
}

// TestCommitFirstOfSlowDisk checks that keys wait for a disk that writes slowly also
// after it has not written for a while.
func TestCommitFirstOfSlowDisk(t *testing.T) {
	inBubble(t, func(w *world) {
		var isStuck atomic.Bool
		var flushed atomic.Int64
		w.opts.CommitFirst = true
		l := w.open()
		if _, err := l.inf.AddEventHandler(slowHandler{l.consumer.Handler(enqueue{l}).(resume.Handler), &isStuck, &flushed}); err != nil {
			t.Fatal(err)
		}
		l.run()
		l.begin()
		w.pass(time.Second)
		isStuck.Store(true)
		w.put("a", "owner-a")
		w.pass(31 * time.Second)
		l.want("when it has waited", "owner-a")
		isStuck.Store(false)
		for i := range 20 {
			w.put("b", fmt.Sprintf("owner-%02d", i))
			w.pass(time.Second)
		}
		before := flushed.Load()
		w.put("c", "owner-c")
		w.pass(time.Second)
		if flushed.Load() == before {
			t.Error("work has begun before what led to it was written")
		}
		l.end()
	})
}

func (s stuckFeed) Flush(ctx context.Context) error {
	if s.isStuck.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Feed.Flush(ctx)
}

// TestCommitFirstOfBrokenDisk checks that only the first key waits long for a disk that
// writes nothing.
func TestCommitFirstOfBrokenDisk(t *testing.T) {
	inBubble(t, func(w *world) {
		var isStuck atomic.Bool
		w.opts.CommitFirst = true
		l := w.open()
		if _, err := l.inf.AddEventHandler(stuckHandler{l.consumer.Handler(enqueue{l}).(resume.Handler), &isStuck}); err != nil {
			t.Fatal(err)
		}
		l.run()
		l.begin()
		w.pass(time.Second)
		isStuck.Store(true)
		w.put("a", "owner-a")
		w.pass(29 * time.Second)
		l.want("while the first key waits")
		w.pass(2 * time.Second)
		l.want("after that", "owner-a")
		for _, name := range []string{"b", "c", "d"} {
			w.put(name, "owner-"+name)
		}
		w.pass(time.Second)
		l.want("while nothing can be written", "owner-b", "owner-c", "owner-d")
		isStuck.Store(false)
		w.put("e", "owner-e")
		w.pass(time.Second)
		l.want("when it can", "owner-e")
		isStuck.Store(true)
		w.put("f", "owner-f")
		w.pass(29 * time.Second)
		l.want("while the next one waits")
		w.pass(2 * time.Second)
		l.want("after that", "owner-f")
		l.end()
	})
}

// TestCommitFirstOfLostFile checks that keys are written before the work on them begins
// also while what has led to them is lost with the file, and the next list does not come.
func TestCommitFirstOfLostFile(t *testing.T) {
	inBubble(t, func(w *world) {
		w.opts.CommitFirst = true
		l := w.start(1)
		l.work = func(name string) outcome {
			values, err := l.db.Ledger(w.Context(), "consumer/test")
			if err != nil || values["key/default/"+name] == nil {
				t.Errorf("the work on %s begins, the ledger has %q, %v", name, slices.Sorted(maps.Keys(values)), err)
			}
			return outcome{}
		}
		l.begin()
		w.pass(time.Minute + 500*time.Millisecond) // between two writes of the ledger
		w.server.Hold()
		if err := os.Remove(w.path); err != nil {
			t.Fatal(err)
		}
		w.put("a", "owner-a")
		w.pass(100 * time.Millisecond)
		l.want("of the change that is lost", "owner-a")
		l.queue.Add(cache.ObjectName{Namespace: "default", Name: "other"})
		w.pass(100 * time.Millisecond)
		l.want("of another key", "other")
		w.server.Release()
		l.end()
	})
}

// hungLedger is a backend whose ledger keeps its writers waiting while it hangs.
type hungLedger struct {
	*bolt.DB
	hangs atomic.Bool
}

func (h *hungLedger) SetLedger(ctx context.Context, name string, changes map[string][]byte) error {
	if h.hangs.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return h.DB.SetLedger(ctx, name, changes)
}

// hungLedger makes the ledger of the world one.
func (w *world) hungLedger() *hungLedger {
	var ledger hungLedger
	w.ledger = func(db *bolt.DB) store.Backend {
		ledger.DB = db
		return &ledger
	}
	return &ledger
}

// TestCommitFirstOfHungLedger checks that a key waits for 30 seconds, and not for ever,
// while another write of the ledger hangs.
func TestCommitFirstOfHungLedger(t *testing.T) {
	inBubble(t, func(w *world) {
		ledger := w.hungLedger()
		w.opts.CommitFirst = true
		l := w.start(1).begin()
		l.queue.AddAfter(cache.ObjectName{Namespace: "default", Name: "later"}, 5*time.Second)
		w.pass(2 * time.Second) // it is written
		ledger.hangs.Store(true)
		l.queue.AddAfter(cache.ObjectName{Namespace: "default", Name: "other"}, 10*time.Hour)
		w.pass(30 * time.Second)
		l.want("while the key waits")
		w.pass(5 * time.Second)
		l.want("after that", "later")
		ledger.hangs.Store(false)
		l.end()
	})
}

// TestHandlerOfHungLedger checks that a handler begins after 30 seconds while another
// write of the ledger hangs.
func TestHandlerOfHungLedger(t *testing.T) {
	inBubble(t, func(w *world) {
		ledger := w.hungLedger()
		ledger.hangs.Store(true)
		w.put("a", "owner-a")
		l := w.open()
		l.addHandler(enqueue{l})
		w.pass(2 * time.Second) // the first write hangs
		l.run()
		l.begin()
		w.pass(29 * time.Second)
		l.want("while the handler waits")
		w.pass(5 * time.Second)
		l.want("after that", "owner-a")
		ledger.hangs.Store(false)
		l.end()
	})
}
