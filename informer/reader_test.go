package informer_test

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/mem"
)

// TestReaderPayloads checks that a reader returns encoded objects and waits for the disk,
// and that it says so if the objects are held in memory.
func TestReaderPayloads(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "x")
		r := w.run(informer.Options{}).sync()
		entries := payloads(t, r.inf)
		payload, id, err := r.inf.Reader().(store.Payloader).AppendPayload(nil, entries[0])
		if err != nil {
			t.Fatal(err)
		}
		obj, err := codec.DecodeAny(id, r.inf.Scope().Kind, payload)
		if err != nil || obj.(*corev1.ConfigMap).Name != "a" {
			t.Errorf("the payload is that of %v, %v", obj, err)
		}
		if n, of, err := r.inf.Reader().(store.Payloader).PayloadSize(entries[0]); err != nil || n != len(payload) || of != id {
			t.Errorf("PayloadSize = %d, %d, %v, want %d, %d", n, of, err, len(payload), id)
		}
		w.put("b", "y")
		synctest.Wait()
		if err := r.inf.Reader().(flusher).Flush(w.Context()); err != nil {
			t.Fatal(err)
		}
		log, err := r.inf.Reader().History()
		if now := r.inf.Reader().Checkpoint().RV; err != nil || log.Stored != now {
			t.Errorf("stored is %q, %v after Flush, want %q", log.Stored, err, now)
		}
		second := w.run(informer.Options{Backend: r.db}).sync()
		if entries := payloads(t, second.inf); entries[0].Raw != nil {
			t.Error("an informer in memory holds an encoded object")
		}
		p := second.inf.Reader().(store.Payloader)
		if _, _, err := p.AppendPayload(nil, entries[0]); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("AppendPayload in memory: %v", err)
		}
		if _, _, err := p.PayloadSize(entries[0]); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("PayloadSize in memory: %v", err)
		}
		if err := second.inf.Reader().(flusher).Flush(w.Context()); err != nil {
			t.Errorf("Flush in memory: %v", err)
		}
		second.end()
		r.end()
	})
}

type flusher interface{ Flush(context.Context) error }

func payloads(t *testing.T, inf *informer.Informer) []store.Entry {
	t.Helper()
	entries, err := inf.Reader().Select(store.Query{Encoded: true})
	if err != nil || len(entries) == 0 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	return entries
}

// TestShortLived checks that the log has an object that is created and deleted before
// anything is written, whether the informer applies that at once or in two parts.
func TestShortLived(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "x")
		for name, backend := range map[string]store.Backend{"bolt": nil, "mem": mem.New()} {
			r := w.run(informer.Options{Backend: backend}).sync()
			commit()
			w.begin(r.inf)
			log, err := r.inf.Reader().History()
			if err != nil {
				t.Fatal(err)
			}
			w.put("twice", "x")
			synctest.Wait()
			w.drop("twice")
			w.put("once", "x")
			w.put("once", "y")
			w.drop("once")
			w.put("stays", "x")
			commit()
			got := map[string]string{}
			ctx, cancel := context.WithCancel(w.Context())
			for e, err := range r.inf.Reader().Follow(ctx, log.Last) {
				if err != nil {
					break
				}
				if v := cmp.Or(e.Short, e.Old); e.New == nil && v != nil {
					got[e.Key] = e.RV + " " + v.Header.UID
				}
				if e.Key == "default/stays" {
					cancel()
				}
			}
			cancel()
			if len(got) != 2 {
				t.Errorf("%s: %q, want the deletions of two objects", name, got)
			}
			w.drop("stays")
			r.end()
		}
	})
}

// begin begins to follow, so that a backend in memory notes what is changed.
func (w *world) begin(inf *informer.Informer) {
	ctx, cancel := context.WithCancel(w.Context())
	cancel()
	for _, err := range inf.Reader().Follow(ctx, store.Place{}) {
		if err != nil && !errors.Is(err, context.Canceled) {
			w.Error(err)
		}
	}
}
