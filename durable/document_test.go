package durable_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/durable"
)

// longName returns the name of an owner of which 300 do not fit into what is shared.
func longName(i int) string {
	r := rand.New(rand.NewPCG(1, uint64(i)))
	b := strings.Builder{}
	for b.Len() < 4000 {
		b.WriteString(strconv.FormatUint(r.Uint64(), 36))
	}
	return fmt.Sprint("owner-", i, "-", b.String())
}

// TestSharedHasRoom checks that 100,000 delayed keys fit, and what the next process makes
// of them.
func TestSharedHasRoom(t *testing.T) {
	const keys = 100_000 / fewer
	inBubble(t, func(w *world) {
		shared := w.shared()
		w.put("a", "owner-a")
		first := w.start(1).begin()
		w.pass(5 * time.Second)
		r := rand.New(rand.NewPCG(1, 1))
		due := map[string]time.Time{}
		for i := range keys {
			name, after := fmt.Sprintf("owner-%06d", i), time.Hour+time.Duration(r.Int64N(int64(10*time.Hour)))
			due[name] = time.Now().Add(after)
			first.queue.AddAfter(cache.ObjectName{Namespace: "default", Name: name}, after)
		}
		w.pass(11 * time.Second)
		if n := shared.size(); n > 512<<10 {
			t.Errorf("%d bytes are shared", n)
		} else {
			t.Logf("%d keys are %d bytes", keys, n)
		}
		first.dies(shared)
		second := w.replica().start(1).begin()
		w.pass(5 * time.Second)
		if s := second.consumer.Status(); s.Delayed != keys {
			t.Errorf("%d of %d keys are delayed in another process", s.Delayed, keys)
		}
		second.end()
	})
}

// TestSharedAsText checks that what was shared before it was compressed is read, and is
// not left beside what is shared now.
func TestSharedAsText(t *testing.T) {
	inBubble(t, func(w *world) {
		shared := w.shared()
		w.put("a", "owner-a")
		first := w.start(1).begin()
		w.pass(time.Minute)
		first.dies(shared)
		var doc map[string]json.RawMessage
		if err := json.Unmarshal([]byte(shared.document()), &doc); err != nil {
			t.Fatal(err)
		}
		doc["keys"] = json.RawMessage(`[{"key":"default/left","waits":true},{"key":"default/later","due":"2000-01-01T05:00:00Z","delay":3600000000000}]`)
		text, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		shared.with(func() {
			shared.held.BinaryData = nil
			shared.held.Data = map[string]string{"consumer.json": string(text)}
		})
		second := w.replica().start(1).begin()
		w.pass(time.Minute)
		second.want("what the text has", "left")
		shared.with(func() {
			if len(shared.held.Data) > 0 || len(shared.held.BinaryData) != 1 {
				t.Errorf("the ConfigMap has the text still: %v", shared.held.Data)
			}
		})
		second.end()
	})
}

// TestSharedIsFull checks that keys that do not fit come from the log.
func TestSharedIsFull(t *testing.T) {
	inBubble(t, func(w *world) {
		shared := w.shared()
		w.put("a", "owner-a")
		release := make(chan struct{})
		first := w.start(1)
		first.work = func(name string) outcome {
			if name == "owner-block" {
				<-release
			}
			return outcome{err: name == "owner-a"}
		}
		first.begin()
		second, elected := w.replica().standby()
		w.pass(time.Minute)
		w.put("block", "owner-block")
		w.pass(time.Minute)
		for i := range 300 {
			w.put(fmt.Sprint("o", i), longName(i))
			if i%100 == 0 {
				w.pass(20 * time.Second)
			}
		}
		w.pass(time.Minute)
		if n := shared.size(); n > 512<<10 {
			t.Errorf("%d bytes are shared", n)
		}
		shared.fail(errors.New("the process has died"))
		close(release)
		first.end()
		shared.fail(nil)
		close(elected)
		w.pass(time.Minute)
		second.mu.Lock()
		for i := range 300 {
			if second.worked[longName(i)] == 0 {
				t.Errorf("owner-%d was lost", i)
			}
		}
		if second.worked["owner-block"] == 0 {
			t.Error("what was in work is lost")
		}
		if len(second.calls) > 302 {
			t.Errorf("%d calls: more than what was left", len(second.calls))
		}
		second.mu.Unlock()
		second.end()
	})
}

// TestSharedIsFullOfFailures checks keys that do not fit although they have failed: their
// objects are deleted, and the log has that.
func TestSharedIsFullOfFailures(t *testing.T) {
	inBubble(t, func(w *world) {
		shared := w.shared()
		for i := range 300 {
			w.put(fmt.Sprint("o", i), longName(i))
		}
		first := w.start(1).begin()
		second, elected := w.replica().standby()
		w.pass(time.Minute)
		first.mu.Lock()
		first.work = func(string) outcome { return outcome{err: true} }
		first.mu.Unlock()
		for i := range 300 {
			w.drop(fmt.Sprint("o", i))
		}
		w.pass(time.Minute)
		first.dies(shared)
		close(elected)
		w.pass(2 * time.Hour)
		second.mu.Lock()
		worked := len(second.worked)
		second.mu.Unlock()
		if worked != 300 {
			t.Errorf("%d of 300 owners were worked on", worked)
		}
		second.end()
	})
}

// TestManyRounds checks that the place is before the keys that are left out, also when
// old places were forgotten.
func TestManyRounds(t *testing.T) {
	inBubble(t, func(w *world) {
		shared := w.shared()
		w.put("a", "owner-a")
		var mu sync.Mutex
		var release chan struct{} // the work waits for it
		blocked := func() chan struct{} {
			mu.Lock()
			defer mu.Unlock()
			return release
		}
		l := w.start(1)
		l.work = func(string) outcome {
			if c := blocked(); c != nil {
				<-c
			}
			return outcome{}
		}
		l.begin()
		w.pass(5 * time.Second) // between two writes
		for range 505 {
			w.put("a", "owner-a")
			w.pass(10 * time.Second)
		}
		for range 12 / fewer {
			mu.Lock()
			release = make(chan struct{})
			mu.Unlock()
			before, err := strconv.Atoi(w.server.RV())
			if err != nil {
				t.Fatal(err)
			}
			for i := range 300 {
				w.put(fmt.Sprint("o", i), longName(i))
			}
			w.pass(30 * time.Second)
			var doc struct {
				Scopes map[string]struct{ ResourceVersion string }
				Keys   struct{ Names []any }
			}
			if err := json.Unmarshal([]byte(shared.document()), &doc); err != nil {
				t.Fatal(err)
			}
			for _, s := range doc.Scopes {
				if rv, err := strconv.Atoi(s.ResourceVersion); err != nil || rv > before && len(doc.Keys.Names) < 300 {
					t.Errorf("the place is %s, and after %d %d keys of 300 are left out", s.ResourceVersion, before, 300-len(doc.Keys.Names))
				}
			}
			mu.Lock()
			close(release)
			release = nil
			mu.Unlock()
			w.pass(10 * time.Second)
		}
		l.end()
	})
}

// TestSharedIsRead checks that keys that compress well are left out, too, if a successor
// would not read them.
func TestSharedIsRead(t *testing.T) {
	names := make([]string, 2400)
	for i := range names {
		names[i] = fmt.Sprintf("default/%06d%s", i, strings.Repeat("x", 30_000))
	}
	kept, err := durable.ShareKeys(names)
	if err != nil {
		t.Errorf("a successor cannot read what is shared: %v", err)
	}
	if kept == len(names) {
		t.Errorf("all of %d keys are shared", kept)
	}
}

// TestSharedDelayOfNever checks that a delay that never ends does not end on a successor.
func TestSharedDelayOfNever(t *testing.T) {
	inBubble(t, func(w *world) {
		shared := w.shared()
		w.put("a", "owner-a")
		first := w.start(1).begin()
		for i, delay := range []time.Duration{math.MaxInt64, math.MaxInt64 - time.Second, math.MaxInt64 / 8 * 7} {
			first.queue.AddAfter(cache.ObjectName{Namespace: "default", Name: fmt.Sprint("never-", i)}, delay)
		}
		w.pass(time.Minute)
		first.want("by the leader", "owner-a")
		first.dies(shared)
		second := w.replica().start(1).begin()
		w.pass(time.Hour)
		second.want("by the successor")
		if s := second.consumer.Status(); s.Delayed != 3 {
			t.Errorf("status %+v", s)
		}
		second.end()
	})
}
