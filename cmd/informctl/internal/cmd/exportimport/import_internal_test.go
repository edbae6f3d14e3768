package exportimport

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// closing is a Relist that removes a file when it is closed.
type closing struct {
	store.Relist
	path string
}

func (r closing) Close() error { return errors.Join(r.Relist.Close(), os.Remove(r.path)) }

// TestLostWhileImported checks that import does not say that it has imported what is lost
// with the file.
func TestLostWhileImported(t *testing.T) {
	lines := strings.Split(`{"informctlExport":1,"following":1,"scope":{"resource":"configmaps","apiVersion":"v1","kind":"ConfigMap","form":"typed","resourceVersion":"10","objects":1}}
{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"a"}}
{"informctlExport":1,"scope":{"resource":"pods","apiVersion":"v1","kind":"Pod","form":"typed","resourceVersion":"10","objects":1}}
{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"a"}}`, "\n")
	begin := func(t *testing.T) (*importer, string) {
		path := filepath.Join(t.TempDir(), "informers.db")
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		env := cmdutil.Env{Streams: genericiooptions.NewTestIOStreamsDiscard()}
		return &importer{ctx: t.Context(), db: db, dir: filepath.Dir(path), meter: env.NewMeter("importing", "objects", 0)}, path
	}
	read := func(t *testing.T, i *importer, lines []string) {
		t.Helper()
		for _, line := range lines {
			if err := i.line([]byte(line)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("before the last commit", func(t *testing.T) {
		i, path := begin(t)
		read(t, i, lines)
		i.list = closing{i.list, path}
		if err := i.finish(); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("error is %v", err)
		}
	})
	t.Run("between two scopes", func(t *testing.T) {
		i, path := begin(t)
		read(t, i, lines[:2])
		if err := errors.Join(i.finish(), os.Remove(path)); err != nil {
			t.Fatal(err)
		}
		i.store = nil
		read(t, i, lines[2:])
		if err := i.finish(); err != nil {
			t.Fatal(err)
		}
		if err := i.close(); err == nil {
			t.Error("a scope is lost, and nothing says so")
		}
	})
}
