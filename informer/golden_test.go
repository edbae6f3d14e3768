package informer_test

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "write what is seen to the golden files")

// golden compares got with the archive's second file, or with -update writes it.
func golden(t *testing.T, path string, archive *txtar.Archive, got string) {
	t.Helper()
	if *update {
		archive.Files = append(archive.Files[:1], txtar.File{Name: "told", Data: []byte(got)})
		if err := os.WriteFile(path, txtar.Format(archive), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want := ""
	if len(archive.Files) > 1 {
		want = string(archive.Files[1].Data)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got; -update writes it):\n%s", path, diff)
	}
}
