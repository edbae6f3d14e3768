package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
)

// TestErrorKeepsItsCause checks that a reader can tell damage, a missing key and the end
// of the process from other errors.
func TestErrorKeepsItsCause(t *testing.T) {
	for cause, kept := range map[error]bool{store.ErrCorrupt: true, store.ErrNoKey: true, store.ErrClosed: true, store.ErrWiped: false} {
		var sent bytes.Buffer
		w := wire.NewWriter(&sent)
		if err := errors.Join(w.Keys([]string{"a"}), w.Error(fmt.Errorf("pods: %w", cause))); err != nil {
			t.Fatal(err)
		}
		_, err := wire.Read(&sent)
		if err == nil || err.Error() != "pods: "+cause.Error() {
			t.Fatalf("read %v, want the text of %v", err, cause)
		}
		if got := errors.Is(err, cause); got != kept {
			t.Errorf("%v is %v: %t, want %t", err, cause, got, kept)
		}
		if errors.Is(err, store.ErrIncomplete) {
			t.Errorf("%v is what it was not", err)
		}
	}
}

// TestReadCut checks that an answer that ends within a part is an error.
func TestReadCut(t *testing.T) {
	var b bytes.Buffer
	w := wire.NewWriter(&b)
	ends := map[int]bool{0: true}
	for _, write := range []func() error{
		func() error { return w.Keys([]string{"a", "b"}) },
		func() error { return w.Dictionary(3, []byte("dictionary")) },
		func() error { return w.Header(store.Header{Key: "a", UID: "u", Created: time.Unix(1, 0)}) },
		func() error { return w.Record(store.Record{Key: "a", Payload: []byte("payload")}) },
	} {
		if err := errors.Join(write(), w.Flush()); err != nil {
			t.Fatal(err)
		}
		ends[b.Len()] = true
	}
	for n := range b.Len() + 1 {
		if _, err := wire.Read(bytes.NewReader(b.Bytes()[:n])); (err == nil) != ends[n] {
			t.Errorf("the first %d bytes of %d: %v", n, b.Len(), err)
		}
	}
}
