package bolt

import (
	"errors"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/boltfile"
)

// closedScope returns an open file with a scope of three objects, which is closed.
func closedScope(t *testing.T, text string) (w *sharingScope, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "informers.db")
	w = openSharingOf(t, path, "1")
	w.list(3, text)
	w.must(w.s.Flush(t.Context()))
	w.must(w.s.Close())
	return w, path
}

// TestOpenOverDamage opens a scope whose content was damaged while the file was open: it
// begins empty, and is stored.
func TestOpenOverDamage(t *testing.T) {
	flip := func(page []byte, at int) { page[at] ^= 1 }
	for what, c := range map[string]struct {
		text string
		how  func(page []byte, at int)
	}{
		"object":   {"text-of-one", flip},
		"manifest": {"\xa6labels", flip},
		"page":     {"text-of-one", func(page []byte, _ int) { clear(page) }},
	} {
		t.Run(what, func(t *testing.T) {
			w, path := closedScope(t, "text-of-one")
			scope, opts := w.s.scope, w.s.opts
			if damagePages(t, path, c.text, c.how) == 0 {
				t.Fatalf("%q is not in the file", c.text)
			}
			opts.Indexers = cache.Indexers{"own": always}
			s, err := w.db.Open(scope, opts)
			if err != nil {
				t.Fatalf("it is not opened: %v", err)
			}
			w.s = s.(*scopeStore)
			if c := s.Checkpoint(); c.RV != "" {
				t.Errorf("it has the resource version %s", c.RV)
			}
			w.list(2, "other")
			w.must(s.Flush(t.Context()))
			w.must(s.Close())
			if s, err = w.db.Open(scope, opts); err != nil {
				t.Fatal(err)
			}
			if keys, err := s.Keys(store.Query{}); err != nil || len(keys) != 2 {
				t.Errorf("it has %d objects, %v; want 2", len(keys), err)
			}
			w.must(w.db.Close())
		})
	}
}

// TestWipeOverDamage wipes everything while the manifest of a scope that nobody has open
// is damaged.
func TestWipeOverDamage(t *testing.T) {
	w, path := closedScope(t, "text")
	if damagePages(t, path, "\xa6labels", func(page []byte, at int) { page[at] ^= 1 }) == 0 {
		t.Fatal("no manifest is in the file")
	}
	if infos, err := w.db.Wipe(nil); err != nil || len(infos) != 0 {
		t.Errorf("%v, %v", infos, err)
	}
	if infos, err := w.db.Scopes(); err != nil || len(infos) != 0 {
		t.Errorf("afterwards: %v, %v", infos, err)
	}
	w.must(w.db.Close())
}

// TestOpenOpensAgain opens a scope of a file that could not be opened again after a write
// that failed.
func TestOpenOpensAgain(t *testing.T) {
	w, path := closedScope(t, "text")
	scope, opts := w.s.scope, w.s.opts
	putBack := putAway(w, path)
	if _, err := w.db.Open(scope, opts); !errors.Is(err, boltfile.ErrNoHandle) {
		t.Errorf("it is opened while the file is away: %v", err)
	}
	putBack()
	s, err := w.db.Open(scope, opts)
	if err != nil {
		t.Fatalf("it is not opened: %v", err)
	}
	if c := s.Checkpoint(); c.RV == "" {
		t.Errorf("it has no resource version: %s", c.Reason)
	}
	w.must(w.db.Close())
}
