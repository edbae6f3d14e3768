package durable_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/internal/resume"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// cluster holds one ConfigMap, whose writes need its resource version.
type cluster struct {
	*fake.Clientset
	t *testing.T

	mu     sync.Mutex // protects the fields below
	held   *corev1.ConfigMap
	rv     int
	err    error // of the next calls
	lost   bool  // the next write succeeds, and its answer is an error
	writes int
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Clientset: &fake.Clientset{}, t: t}
	c.AddReactor("*", "configmaps", c.react)
	return c
}

func (c *cluster) react(action clienttesting.Action) (bool, runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	resource := action.GetResource().GroupResource()
	if c.err != nil {
		return true, nil, c.err
	}
	switch a := action.(type) {
	case clienttesting.CreateAction:
		if c.held != nil {
			return true, nil, apierrors.NewAlreadyExists(resource, "state")
		}
		c.held = a.GetObject().(*corev1.ConfigMap).DeepCopy()
	case clienttesting.PatchAction:
		var patch corev1.ConfigMap
		if err := json.Unmarshal(a.GetPatch(), &patch); err != nil {
			c.t.Error(err)
		}
		switch {
		case c.held == nil:
			return true, nil, apierrors.NewNotFound(resource, a.GetName())
		case patch.ResourceVersion != c.held.ResourceVersion:
			return true, nil, apierrors.NewConflict(resource, a.GetName(), errors.New("written meanwhile"))
		}
		c.held.BinaryData = patch.BinaryData // there is one key
		if bytes.Contains(a.GetPatch(), []byte(`"data":{"consumer.json":null}`)) {
			c.held.Data = nil
		}
	case clienttesting.GetAction: // the others are one, too
		if c.held == nil {
			return true, nil, apierrors.NewNotFound(resource, a.GetName())
		}
		return true, c.held.DeepCopy(), nil
	default:
		c.t.Errorf("unexpected %s", action.GetVerb())
	}
	c.rv++
	c.writes++
	c.held.ResourceVersion = strconv.Itoa(c.rv)
	if c.lost {
		c.lost = false
		return true, nil, errors.New("the connection was lost")
	}
	return true, c.held.DeepCopy(), nil
}

func (c *cluster) fail(err error) { c.with(func() { c.err = err }) }

// with calls f while nobody else reads or writes the fields.
func (c *cluster) with(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// size returns the size of the document as it is held.
func (c *cluster) size() (n int) {
	c.with(func() { n = len(c.held.BinaryData["consumer.json.zst"]) })
	return n
}

func unzip(t *testing.T, b []byte) []byte {
	t.Helper()
	dec, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	if b, err = dec.DecodeAll(b, nil); err != nil {
		t.Errorf("the document is not compressed: %v", err)
	}
	return b
}

func (c *cluster) document() (text string) {
	c.with(func() {
		if c.held != nil {
			text = string(unzip(c.t, c.held.BinaryData["consumer.json.zst"]))
		}
	})
	return text
}

// shared makes the consumers of the world share what is left.
func (w *world) shared() *cluster {
	c := newCluster(w.T)
	w.opts.Shared = durable.InCluster(c, "default", "state")
	return c
}

// replica returns a world with the same server and another file.
func (w *world) replica() *world {
	other := *w
	other.dir = w.TempDir()
	other.path = filepath.Join(other.dir, "informers.db")
	return &other
}

// standby starts a process that is elected when the returned channel is closed.
func (w *world) standby() (*life, chan struct{}) {
	w.Helper()
	elected := make(chan struct{})
	w.opts.Elected = elected
	return w.start(1).begin(), elected
}

// dies ends a process of which nobody sees any more: it writes nothing.
func (l *life) dies(c *cluster) {
	l.w.Helper()
	c.fail(errors.New("the process has died"))
	l.end()
	c.fail(nil)
}

// TestFailover checks that a standby with a file of its own goes on where the leader has
// been killed: with what was changed and deleted since the leader wrote last, and with
// the keys that were left, of which delays keep their time and failures their count.
func TestFailover(t *testing.T) {
	inBubble(t, func(w *world) {
		shared := w.shared()
		for i := range 20 {
			w.put(fmt.Sprint("o", i), fmt.Sprint("owner-", i))
		}
		first := w.start(1)
		first.work = func(name string) outcome {
			switch name {
			case "owner-1":
				return outcome{err: true}
			case "owner-2":
				return outcome{after: time.Hour}
			}
			return outcome{}
		}
		first.begin()
		second, elected := w.replica().standby()
		second.wantCalls("of a standby")
		second.want("on a standby")
		w.put("o3", "owner-3")
		w.pass(time.Minute)
		first.want("by the leader", append([]string{"owner-1", "owner-1", "owner-1", "owner-1", "owner-1", "owner-3"}, owners(20)...)...)
		// Since the leader has written last: what it has done is done again.
		w.put("o4", "owner-4")
		w.drop("o5")
		synctest.Wait()
		first.want("at last", "owner-4", "owner-5")
		first.dies(shared)
		w.put("o6", "owner-6")
		w.drop("o7")
		w.put("o8", "owner-x") // moved

		begun := time.Now()
		close(elected)
		w.pass(time.Second)
		second.want("by the successor", "owner-4", "owner-5", "owner-6", "owner-7", "owner-8", "owner-x")
		if n := second.queue.NumRequeues(cache.ObjectName{Namespace: "default", Name: "owner-1"}); n < 5 {
			t.Errorf("%d failures are known of the key that fails, want 5 at least", n)
		}
		w.pass(57*time.Minute - time.Since(begun))
		second.want("of what has failed", "owner-1")
		w.pass(5 * time.Minute)
		second.want("of what was delayed", "owner-2")
		if s := second.consumer.Status(); s.Term != 2 || s.Waiting+s.Delayed+s.Failed > 0 || s.Scopes[0].Everything != "" {
			t.Errorf("status %+v", s)
		}

		// The first one comes back: its file is of an older term.
		second.end()
		w.put("o9", "owner-9")
		first = w.start(1).begin()
		w.pass(time.Minute)
		// Its file ends before these changes. If the handler begins before the watch has
		// brought them, it receives them once more.
		first.mu.Lock()
		for _, owner := range []string{"owner-6", "owner-7", "owner-8", "owner-x"} {
			delete(first.worked, owner)
		}
		first.mu.Unlock()
		first.want("by the first one", "owner-9")
		first.end()
		// And again: what the file has is newer than what it has shared.
		w.put("o9", "owner-9")
		first = w.start(1).begin()
		first.want("by the first one again", "owner-9")
		first.end()
	})
}

func owners(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("owner-", i))
	}
	return names
}

// TestFailoverWithoutFile checks a successor without a file: it receives what is newer,
// and then each object once.
func TestFailoverWithoutFile(t *testing.T) {
	inBubble(t, func(w *world) {
		w.opts.Every = time.Hour
		shared := w.shared()
		for i := range 5 {
			w.put(fmt.Sprint("o", i), fmt.Sprint("owner-", i))
		}
		first := w.start(1)
		first.work = func(name string) outcome { return outcome{err: name == "owner-1"} }
		first.begin()
		w.pass(time.Minute)
		first.dies(shared)
		w.put("o2", "owner-2")
		w.put("new", "owner-new")
		w.drop("o3")
		second := w.replica().start(1).begin()
		second.wantCalls("without a file", "add new of owner-new", "add o2 of owner-2")
		second.want("without a file", "owner-2", "owner-new")
		w.pass(2 * time.Minute)
		second.want("of the failed", "owner-1")
		second.kill()
		second = second.w.start(1).begin()
		w.pass(58*time.Minute + 30*time.Second)
		second.want("one by one", "owner-0", "owner-1", "owner-2", "owner-4", "owner-new")
		w.pass(10 * time.Hour)
		second.want("nothing more")
		second.end()
	})
}

// TestFailoverToAnotherHistory checks a successor after the server was restored from a
// backup: the resource version that the leader has shared says nothing of what there is.
func TestFailoverToAnotherHistory(t *testing.T) {
	for name, standby := range map[string]bool{"without a file": false, "whose file knows": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.opts.Unchanged, w.opts.Every = durable.Trickle, 100*time.Hour
				shared := w.shared()
				w.put("a", "owner-a")
				past := w.server.RV()
				w.put("b", "owner-b")
				w.put("c", "owner-c")
				first := w.start(1).begin()
				w.pass(time.Minute)
				first.dies(shared)
				other := w.replica()
				var second *life
				var elected chan struct{}
				if standby {
					second, elected = other.standby()
					w.pass(time.Minute)
				}
				if err := w.server.Rewind(past); err != nil {
					t.Fatal(err)
				}
				w.put("a", "owner-x") // with a resource version of the history before
				w.pass(time.Minute)
				if standby {
					close(elected)
				} else {
					second = other.start(1).begin()
				}
				w.pass(time.Minute)
				second.want("after the restore", "owner-x")
				if s := second.consumer.Status(); s.Scopes[0].Everything == "" {
					t.Errorf("status %+v", s)
				}
				second.end()
			})
		})
	}
}

// TestDeposed checks that a process that was taken over writes nothing any more.
func TestDeposed(t *testing.T) {
	inBubble(t, func(w *world) {
		shared := w.shared()
		w.put("a", "owner-a")
		first := w.start(1).begin()
		first.want("at first", "owner-a")
		w.pass(time.Minute)
		second := w.replica().start(1).begin() // the election was wrong
		w.pass(time.Minute)
		document := shared.document()
		w.put("b", "owner-b")
		w.pass(5 * time.Second) // second has not written since
		first.want("by the first", "owner-b")
		second.want("by the second", "owner-b")
		w.pass(time.Minute)
		if s := first.consumer.Status(); s.State == durable.Active {
			t.Errorf("the first one is active still: %+v", s)
		}
		if s := second.consumer.Status(); s.State != durable.Active || s.Term != 2 || shared.document() == document {
			t.Errorf("the second one is not active, or does not write: %+v", s)
		}
		document = shared.document()
		first.end()
		if shared.document() != document {
			t.Error("the first one has written at its end")
		}
		second.end()
	})
}

// TestSharedFails checks a server that does not answer, an answer that is lost, a
// document that cannot be read, and one that somebody edits or deletes.
func TestSharedFails(t *testing.T) {
	inBubble(t, func(w *world) {
		shared := w.shared()
		w.put("a", "owner-a")
		shared.fail(errors.New("forbidden"))
		l := w.start(1).begin()
		w.pass(2 * time.Minute)
		l.want("before anybody is asked")
		if s := l.consumer.Status(); s.State == durable.Active || !strings.Contains(s.SharedError, "forbidden") {
			t.Errorf("status %+v", s)
		}
		shared.fail(nil)
		w.pass(time.Minute)
		l.want("then", "owner-a")
		shared.fail(errors.New("forbidden"))
		w.put("b", "owner-b")
		w.pass(5 * time.Second)
		l.dies(shared)

		// The file is newer than what is shared, also if the answer is lost.
		w.put("c", "owner-c")
		shared.with(func() { shared.lost = true })
		l = w.start(1).begin()
		w.pass(time.Minute)
		l.want("an answer was lost", "owner-c")
		if s := l.consumer.Status(); s.SharedError != "" || s.Term != 3 {
			t.Errorf("status %+v", s)
		}

		shared.with(func() {
			shared.held.Labels = map[string]string{"a": "label"}
			shared.rv++
			shared.held.ResourceVersion = strconv.Itoa(shared.rv)
		})
		w.put("d", "owner-d")
		w.pass(time.Minute)
		if s := l.consumer.Status(); s.State != durable.Active || !strings.Contains(shared.document(), s.Scopes[0].ResourceVersion) {
			t.Errorf("after an edit: %+v, and %s", s, shared.document())
		}
		shared.with(func() {
			if shared.held.Labels["a"] == "" {
				t.Error("a label is lost")
			}
			shared.held.BinaryData["consumer.json.zst"] = []byte("?")
			shared.rv++
			shared.held.ResourceVersion = strconv.Itoa(shared.rv)
		})
		w.put("f", "owner-f")
		w.pass(time.Minute)
		if s := l.consumer.Status(); s.State != durable.Active || !strings.Contains(s.SharedError, "delete it") {
			t.Errorf("after an edit that cannot be read: %+v", s)
		}
		shared.with(func() { shared.held = nil })
		w.put("e", "owner-e")
		w.pass(time.Minute)
		if shared.document() == "" {
			t.Error("it was not written again")
		}
		var writes int
		shared.with(func() { writes = shared.writes })
		w.pass(10 * time.Minute)
		shared.with(func() {
			if shared.writes > writes+2 { // bookmarks move the place
				t.Errorf("%d writes of what has not changed", shared.writes-writes)
			}
		})
		l.end()

		shared.with(func() { shared.held.BinaryData["consumer.json.zst"] = []byte("?") })
		l = w.start(1).begin()
		if s := l.consumer.Status(); s.State == durable.Active || !strings.Contains(s.SharedError, "delete it") {
			t.Errorf("with a document that cannot be read: %+v", s)
		}
		shared.with(func() { shared.held = nil })
		w.pass(time.Minute)
		if s := l.consumer.Status(); s.State != durable.Active {
			t.Errorf("without it: %+v", s)
		}
		l.end()
	})
}

// TestColdStandby checks what a standby has seen that began after the leader has died:
// the log does not lead there from the leader's place, and has deletions.
func TestColdStandby(t *testing.T) {
	inBubble(t, func(w *world) {
		shared := w.shared()
		w.put("a", "owner-a")
		w.put("b", "owner-b")
		first := w.start(1).begin()
		w.pass(time.Minute)
		first.dies(shared)
		w.put("c", "owner-c") // so that the list is after the place
		second, elected := w.replica().standby()
		w.pass(5 * time.Second)
		w.put("b", "owner-x")
		w.drop("a")
		w.pass(5 * time.Second)
		close(elected)
		w.pass(5 * time.Second)
		second.wantCalls("from the log and then what is newer",
			"update b of owner-b,owner-x", "delete a of owner-a", "add b of owner-x", "add c of owner-c")
		second.end()
	})
}

// TestHandlerAfterTakeover checks a handler that begins when nothing has happened since
// the other process had the place.
func TestHandlerAfterTakeover(t *testing.T) {
	for name, bookmarks := range map[string]bool{"without bookmarks": false, "where only a bookmark has come since": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				if !bookmarks {
					w.server = fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{NoBookmarks: true})
				}
				w.shared()
				w.put("a", "owner-a")
				first := w.start(1).begin()
				w.pass(5 * time.Second)
				first.end()
				if bookmarks {
					w.server.Advance()
				}
				second := w.replica().start(1).begin()
				w.pass(5 * time.Second)
				second.end()
				first = w.open()
				synctest.Wait() // the place is taken over
				reg, err := first.inf.AddEventHandler(first.consumer.Handler(enqueue{first}))
				if err != nil {
					t.Fatal(err)
				}
				first.run()
				first.begin()
				w.pass(5 * time.Second)
				if !reg.HasSynced() {
					t.Error("the handler has not synced")
				}
				w.pass(5 * time.Second)
				first.want("when nothing has happened")
				first.end()
			})
		})
	}
}

// TestDiesAfterClaim checks a process that dies when it has taken over and not written
// anything else: the next one has its file still.
func TestDiesAfterClaim(t *testing.T) {
	inBubble(t, func(w *world) {
		shared := w.shared()
		w.put("a", "owner-a")
		first := w.start(1).begin()
		w.pass(time.Minute)
		shared.fail(errors.New("forbidden"))
		first.queue.AddAfter(cache.ObjectName{Namespace: "default", Name: "owner-x"}, time.Hour)
		w.pass(3 * time.Second) // it is in the file only
		next := first.image()
		first.dies(shared)
		w.path = next
		shared.with(func() { shared.lost = true })
		second := w.open()
		synctest.Wait()
		second.run()
		next = second.image()
		second.dies(shared)
		w.path = next
		third := w.start(1).begin()
		w.pass(2 * time.Hour)
		third.want("by the third one", "owner-x")
		third.end()
	})
}

// markFeed is a feed of which Mark returns what is set.
type markFeed struct {
	feedOf
	mu   sync.Mutex // protects last
	last store.Place
}

func (f *markFeed) set(mark uint64, rv string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = store.Place{Lineage: "lineage", Mark: mark, RV: rv}
}

func (f *markFeed) Mark() (store.Place, uint64, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.last.Mark, true
}

// TestSharedWhileListed checks that the place of a scope stays in what is shared while it
// is listed again, also by the next process.
func TestSharedWhileListed(t *testing.T) {
	inBubble(t, func(w *world) {
		shared := w.shared()
		db, err := bolt.Open(w.path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		feed := &markFeed{feedOf: feedOf{keys: &[]string{}}}
		feed.set(1, "10")
		for range 2 {
			c, err := durable.Open(db, "test", w.opts)
			if err != nil {
				t.Fatal(err)
			}
			c.Handler(cache.ResourceEventHandlerFuncs{}).(resume.Handler).Opened(feed)
			w.pass(30 * time.Second)
			feed.set(2, "")
			w.pass(30 * time.Second)
			if rv := c.Status().Scopes[0].ResourceVersion; rv != "" {
				t.Errorf("the place of the file is %s, want one without a resource version", rv)
			}
			if text := shared.document(); !strings.Contains(text, `"resourceVersion":"10","handlers":1`) {
				t.Errorf("while it is listed: %s", text)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}
