package mem_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/mem"
)

// TestLedger checks that values are those that were set, by name, and the caller's own.
func TestLedger(t *testing.T) {
	db := mem.New()
	value := []byte("1")
	set := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(name string, values map[string][]byte) {
		t.Helper()
		got, err := db.Ledger(t.Context(), name)
		if diff := cmp.Diff(values, got); err != nil || diff != "" {
			t.Errorf("%s: error %v, values (-want +got):\n%s", name, err, diff)
		}
		for key := range got {
			got[key][0] = 'x'
		}
	}
	want("a", map[string][]byte{})
	set(db.SetLedger(t.Context(), "a", map[string][]byte{"one": value, "two": []byte("2")}))
	set(db.SetLedger(t.Context(), "b", map[string][]byte{"three": []byte("3")}))
	value[0] = 'x'
	want("a", map[string][]byte{"one": []byte("1"), "two": []byte("2")})
	want("a", map[string][]byte{"one": []byte("1"), "two": []byte("2")})
	set(db.SetLedger(t.Context(), "a", map[string][]byte{"one": nil}))
	want("a", map[string][]byte{"two": []byte("2")})
	set(db.ReplaceLedger(t.Context(), "a", map[string][]byte{"four": []byte("4"), "five": nil}))
	want("a", map[string][]byte{"four": []byte("4")})
	want("b", map[string][]byte{"three": []byte("3")})

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := db.SetLedger(ended, "a", map[string][]byte{"six": value}); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	if err := db.SetLedger(t.Context(), "", nil); err == nil {
		t.Error("a ledger without a name")
	}
	set(db.Close())
	if _, err := db.Ledger(t.Context(), "a"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := db.SetLedger(t.Context(), "a", nil); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
