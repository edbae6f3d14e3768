package cli_test

import (
	"context"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/informctl/informctl/cmd/informctl/internal/cli"
	"github.com/informctl/informctl/internal/bolttest"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestCopiesLeaveSpace checks that no copy fills the volume of the file, whether a
// process holds the file or not, that nothing of it stays, and that the process goes on
// writing.
func TestCopiesLeaveSpace(t *testing.T) {
	volume, other := bolttest.Volume(t, 16), t.TempDir()
	path := filepath.Join(volume, "informers.db")
	if err := copyFile(podFile(t, noisyPod), path); err != nil {
		t.Fatal(err)
	}
	// What stays free is 4 MiB, and half of a copy.
	release := bolttest.Fill(t, volume, 12<<20-size(t, path)*3/2)
	before := names(t, volume)
	exported := func(out string, args ...string) (code int, err string) {
		f, fileErr := os.Create(out)
		if fileErr != nil {
			t.Fatal(fileErr)
		}
		defer func() { _ = f.Close() }()
		var errOut strings.Builder
		streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: f, ErrOut: &errOut}
		return cli.MainAt(t.Context(), streams, append([]string{"export", "--db", path}, args...), now), errOut.String()
	}
	refused := func(what string, code int, err string) {
		t.Helper()
		if code != 1 || !strings.Contains(err, "too little space at "+volume) {
			t.Errorf("%s: exit code %d, %s", what, code, err)
		}
	}
	for _, args := range [][]string{{"snapshot", filepath.Join(volume, "copy.db")}, {"compact"}} {
		got := say(t.Context(), append(args, "--db", path)...)
		refused(args[0], got.Code, got.Err)
	}
	out, more := filepath.Join(volume, "out.jsonl"), bolttest.Fill(t, volume, size(t, path)/2-128<<10)
	code, err := exported(out)
	refused("export", code, err)
	more()
	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}

	db, stop := hold(t, path)
	live := [][]string{{"snapshot", filepath.Join(other, "copy.db")}, {"export"}, {"verify"}}
	for _, args := range live {
		got := say(t.Context(), append(args, "--db", path)...)
		refused(args[0]+" of a live process", got.Code, got.Err)
	}
	fill(t, db, corev1.SchemeGroupVersion.WithKind("Pod"), "pods", store.Typed, testobjects.Pod(1, 2))
	if after := slices.DeleteFunc(names(t, volume), isOfProcess); !slices.Equal(before, after) || len(names(t, other)) > 0 {
		t.Errorf("%q and %q are there, before %q", after, names(t, other), before)
	}
	release()
	for _, args := range live {
		if got := say(t.Context(), append(args, "--db", path)...); got.Code != 0 {
			t.Errorf("with space: %q: %+v", args, got)
		}
	}
	stop()
	if got := say(t.Context(), "compact", "--db", path); got.Code != 0 {
		t.Errorf("with space: compact: %+v", got)
	}
	if code, err := exported(out); code != 0 {
		t.Errorf("with space: export: exit code %d, %s", code, err)
	}
}

// TestImportLeavesSpace checks that an import ends on a volume that has too little space,
// and that nothing of it stays.
func TestImportLeavesSpace(t *testing.T) {
	for name, tt := range map[string]struct {
		pods int
		free int64
		want string
	}{
		"would fill up": {2000, 5 << 20, "too little space at "},
		"is full":       {60, 96 << 10, "no space left on device"},
	} {
		t.Run(name, func(t *testing.T) {
			from, export := filepath.Join(t.TempDir(), "from.db"), filepath.Join(t.TempDir(), "export.jsonl")
			db, err := bolt.Open(from, bolt.Options{})
			if err != nil {
				t.Fatal(err)
			}
			list := make([]runtime.Object, tt.pods)
			for i := range list {
				list[i] = noisyPod(i)
			}
			fill(t, db, corev1.SchemeGroupVersion.WithKind("Pod"), "pods", store.Typed, list...)
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(export, run(t, "export", "--db", from), 0o600); err != nil {
				t.Fatal(err)
			}
			volume := bolttest.Volume(t, 16)
			bolttest.Fill(t, volume, 16<<20-tt.free)
			before := names(t, volume)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			got := say(ctx, "import", export, "--db", filepath.Join(volume, "new.db"))
			if got.Code != 1 || !strings.Contains(got.Err, tt.want) || ctx.Err() != nil {
				t.Errorf("exit code %d, %s", got.Code, got.Err)
			}
			if after := names(t, volume); !slices.Equal(before, after) {
				t.Errorf("%q are there, before %q", after, before)
			}
		})
	}
}

// noisyPod returns a pod that cannot be compressed well.
func noisyPod(i int) *corev1.Pod {
	pod := testobjects.Pod(i, 1)
	pod.Annotations["noise"] = hex.EncodeToString(testobjects.Secret(i, 1, 1500).Data["value"])
	return pod
}

// names returns the names of the files in a directory.
func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// isOfProcess reports whether a process that holds a file has that file beside it.
func isOfProcess(name string) bool {
	return strings.HasSuffix(name, ".lock") || strings.HasSuffix(name, ".sock")
}
