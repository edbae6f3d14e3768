package layout_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// TestScopes checks that a scope that is lost, and a manifest in the bucket of another
// scope, are noticed.
func TestScopes(t *testing.T) {
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	update := func(fn func(tx *bbolt.Tx) error) {
		t.Helper()
		if err := db.Update(fn); err != nil {
			t.Fatal(err)
		}
	}
	want := record.NewManifest(store.Scope{Cluster: "c", Resource: "pods"})
	id := want.Scope().ID()
	update(func(tx *bbolt.Tx) error {
		if err := layout.CreateMeta(tx, "e"); err != nil {
			return err
		}
		scopes, err := tx.CreateBucket(layout.Scopes)
		if err != nil {
			return err
		}
		b, err := scopes.CreateBucket([]byte(id))
		if err != nil {
			return err
		}
		if err := layout.WriteManifest(b, want); err != nil {
			return err
		}
		return layout.WriteScopeTally(tx)
	})
	update(func(tx *bbolt.Tx) error {
		if epoch, format := tx.Bucket(layout.Meta).Get(layout.KeyEpoch), tx.Bucket(layout.Meta).Get(layout.KeyFormat); string(epoch) != "e" || !layout.IsFormat(format) {
			t.Errorf("epoch %q, format %q", epoch, format)
		}
		got, err := layout.ReadManifest(id, layout.Scope(tx, id))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("error %v, manifest (-want +got):\n%s", err, diff)
		}
		if _, err := layout.ReadManifest("other", layout.Scope(tx, id)); err == nil || !strings.Contains(err.Error(), id) {
			t.Errorf("the manifest of another scope: error %v", err)
		}
		if layout.Scope(tx, "other") != nil || layout.Index(layout.Scope(tx, id), "name") != nil {
			t.Error("there is what was not created")
		}
		if err := layout.CheckScopeTally(tx); err != nil {
			t.Error(err)
		}
		if err := layout.OnlyOurs(tx); err != nil {
			t.Error(err)
		}
		return tx.Bucket(layout.Scopes).DeleteBucket([]byte(id))
	})
	update(func(tx *bbolt.Tx) error {
		if err := layout.CheckScopeTally(tx); err == nil {
			t.Error("a lost scope is not noticed")
		}
		return tx.DeleteBucket(layout.Scopes)
	})
	update(func(tx *bbolt.Tx) error {
		if err := layout.CheckScopeTally(tx); err == nil {
			t.Error("lost scopes are not noticed")
		}
		_, err := tx.CreateBucket([]byte("other"))
		if err == nil {
			err = layout.OnlyOurs(tx)
		}
		if err == nil {
			t.Error("a bucket of others is not noticed")
		}
		return nil
	})
}

// TestIsFormat checks which names are formats of this program.
func TestIsFormat(t *testing.T) {
	for name, want := range map[string]bool{
		layout.Format: true, layout.FormatPrefix + "9": true, layout.FormatPrefix: false, layout.FormatPrefix + "-1": false, "other": false,
	} {
		if got := layout.IsFormat([]byte(name)); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
}
