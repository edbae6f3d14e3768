package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
)

// TestErrorKeepsItsCause: who reads an answer can tell damage and a missing key from
// other errors.
func TestErrorKeepsItsCause(t *testing.T) {
	for cause, kept := range map[error]bool{store.ErrCorrupt: true, store.ErrNoKey: true, store.ErrClosed: false} {
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
