package informer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
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
