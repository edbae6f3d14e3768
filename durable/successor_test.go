package durable_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/informctl/informctl/durable"
)

// TestRewoundUnderLeader checks a successor without a file after the server was restored
// from a backup under a leader whose place did not move, or that has keys from before
// that do not fit into what is shared.
func TestRewoundUnderLeader(t *testing.T) {
	for name, row := range map[string]struct {
		isMissing, isFull bool
		takenOver         bool // the leader has no file of the time before
	}{
		"a handler is missing":                    {isMissing: true},
		"a handler of a successor is missing":     {isMissing: true, takenOver: true},
		"the oldest key is of the history before": {isFull: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.opts.Unchanged, w.opts.Every = durable.Trickle, 100*time.Hour
				shared := w.shared()
				handlers := 1
				w.put("b", "owner-b")
				past := w.server.RV()
				w.put("a", "owner-a")
				w.put("c", "owner-c")
				if row.isMissing {
					handlers = 2
					first := w.start(2).begin()
					w.pass(time.Minute)
					first.end()
				}
				leader := w
				if row.takenOver {
					leader = w.replica()
				}
				first := leader.start(1)
				release := make(chan struct{})
				first.work = func(name string) outcome {
					if name == "owner-block" {
						<-release
					}
					return outcome{}
				}
				first.begin()
				w.pass(time.Minute)
				if row.isFull {
					w.put("block", "owner-block")
					w.pass(time.Minute)
					for i := range 300 {
						w.put(fmt.Sprint("o", i), longName(i))
					}
					w.pass(time.Minute)
				}
				if err := w.server.Rewind(past); err != nil {
					t.Fatal(err)
				}
				w.put("a", "owner-x")
				w.pass(time.Minute)
				for i := range 10 { // the server goes past what was shared
					w.put(fmt.Sprint("new-", i), "owner-new")
				}
				w.pass(time.Minute)
				shared.fail(errors.New("the process has died"))
				close(release)
				first.end()
				shared.fail(nil)
				second := w.replica().start(handlers).begin()
				w.pass(time.Minute)
				second.mu.Lock()
				if second.worked["owner-x"] == 0 {
					t.Errorf("owner-x was lost; received %q", second.calls)
				}
				second.mu.Unlock()
				if s := second.consumer.Status(); s.Scopes[0].Everything == "" {
					t.Errorf("status %+v", s)
				}
				second.end()
			})
		})
	}
}

// TestSharedLacksScope checks that a standby goes on from its own log where what is
// shared has no place: it has seen an object that it did not have when it began, and that
// is deleted.
func TestSharedLacksScope(t *testing.T) {
	inBubble(t, func(w *world) {
		shared := w.shared()
		w.put("b", "owner-b")
		first := w.start(1).begin()
		second, elected := w.replica().standby()
		w.put("a", "owner-a")
		w.pass(time.Minute)
		first.dies(shared)
		var doc map[string]json.RawMessage
		if err := json.Unmarshal([]byte(shared.document()), &doc); err != nil {
			t.Fatal(err)
		}
		delete(doc, "scopes")
		text, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		shared.with(func() {
			shared.held.BinaryData = nil
			shared.held.Data = map[string]string{"consumer.json": string(text)}
		})
		w.drop("a")
		w.pass(time.Minute)
		close(elected)
		w.pass(time.Minute)
		second.wantCalls("from the log and then everything",
			"delete a of owner-a", "initial add b of owner-b")
		second.end()
	})
}
