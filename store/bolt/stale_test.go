package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
)

// TestDictionariesComeAgain checks that a scope that once had as many dictionaries as are
// allowed gets another one when it does not use them any more and was opened again.
func TestDictionariesComeAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "i.db")
	open := func() *sharingScope {
		db, err := Open(path, Options{CommitInterval: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		c, _ := codec.For(&corev1.ConfigMap{})
		s, err := db.Open(store.Scope{Cluster: "c", Resource: "configmaps", Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}, store.Options{Codec: c, History: store.History{Bytes: -1}})
		if err != nil {
			t.Fatal(err)
		}
		return &sharingScope{T: t, db: db, s: s.(*scopeStore)}
	}
	w := open()
	w.list(200, randomText(300))
	for k := range 12 {
		text := randomText(300)
		w.s.packer.Load().SetTrials(1)
		w.apply(140, text)
		w.must(w.s.Flush(t.Context()))
		// This one stays as it is.
		w.must(w.s.Apply(store.Batch{RV: "5", Changes: []store.Change{{Object: w.object(500+k, text)}}}))
		w.must(w.s.Flush(t.Context()))
		w.must(w.db.Close())
		w = open()
	}
	// now nothing uses the earlier ones
	last := randomText(300)
	var gone []store.Change
	for k := range 12 {
		gone = append(gone, store.Change{Key: fmt.Sprintf("d/o%03d", 500+k)})
	}
	w.must(w.s.Apply(store.Batch{RV: "6", Changes: gone}))
	w.apply(200, last)
	w.must(w.s.Flush(t.Context()))
	w.must(w.db.Close())
	for range 3 {
		w = open()
		w.s.packer.Load().SetTrials(1)
		for range 3 {
			w.apply(200, last)
			w.must(w.s.Flush(t.Context()))
		}
		if !w.has(last) {
			t.Error("no dictionary of what is written now, although nothing uses the others")
		}
		w.must(w.db.Close())
	}
}

// TestOldIndexBesideTrim checks that an index that could not be dropped when the scope
// was opened is dropped whole, also if the next write is a trim of the log that finds
// nothing to trim.
func TestOldIndexBesideTrim(t *testing.T) {
	path := filepath.Join(t.TempDir(), "i.db")
	c, _ := codec.For(&corev1.ConfigMap{})
	scope := store.Scope{Cluster: "c", Resource: "configmaps", Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}
	open := func(idx index.Index, hook bool) *sharingScope {
		db, err := Open(path, Options{CommitInterval: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if aside := db.SetAside(); aside != "" {
			reason, _ := os.ReadFile(aside + ".reason")
			t.Fatalf("set aside: %s", reason)
		}
		if hook {
			HookWrites(db, func(next WriteAt) WriteAt {
				return func([]byte, int64) (int, error) { return 0, errors.New("on purpose") }
			})
		}
		s, err := db.Open(scope, store.Options{Codec: c, Indexes: []index.Index{idx}})
		if err != nil {
			t.Fatal(err)
		}
		return &sharingScope{T: t, db: db, s: s.(*scopeStore)}
	}
	w := open(index.Namespace(), false)
	w.list(20, "text")
	w.must(w.s.Flush(t.Context()))
	w.must(w.db.Close())
	w = open(index.Label("app"), true)
	if len(w.s.oldIndexes) == 0 {
		t.Fatal("the index was dropped: this tests nothing")
	}
	w.db.trimLogs(1) // as keepReserve does, before each commit
	w.must(w.db.commit())
	w.must(w.db.Close())
	w = open(index.Label("app"), false)
	w.must(w.db.Close())
}
