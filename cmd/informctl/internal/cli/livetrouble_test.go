package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/store"
)

// TestLiveDamage checks that damage in a file that a process holds results in the exit
// code for damage and in one line that names the user's file and says how it is repaired.
func TestLiveDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	t.Setenv("TMPDIR", t.TempDir())
	writeFile(t, path)
	_, _ = hold(t, path)
	damageInPlace(t, path, "image:1")
	for _, args := range [][]string{
		{"dump", "pods", "-o", "json"},
		{"query", "pods", "--where", "has(object.spec)"},
		{"export", "pods"},
		{"verify"},
		{"snapshot", path + ".out"},
		{"diff", path, path},
	} {
		if args[0] != "diff" {
			args = append(args, "--db", path)
		}
		got := say(t.Context(), args...)
		lines := strings.Split(strings.TrimSuffix(got.Err, "\n"), "\n")
		last := lines[len(lines)-1]
		if got.Code != 3 || !strings.Contains(last, path+" is damaged: ") || strings.Contains(last, os.TempDir()) ||
			!strings.HasSuffix(last, "; the process that holds the file lists it again, or sets it aside when it starts next") {
			t.Errorf("%q: exit code %d, %q", args, got.Code, got.Err)
		}
	}
	if _, err := os.Stat(path + ".out"); err == nil {
		t.Error("a damaged copy stays")
	}
}

// damageInPlace changes the last byte of the last occurrence of the text in a file that
// is mapped into memory.
func damageInPlace(t *testing.T, path, text string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(data, []byte(text)) + len(text) - 1
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{data[at] ^ 0x20}, int64(at)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLiveWithoutKey checks that scopes for which the process has no key are reported as
// errors after all other output.
func TestLiveWithoutKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "more.db")
	writeMore(t, path)
	holdWith(t, path, nil)
	got := say(t.Context(), "dump", "pods,secrets", "-o", "yaml", "--db", path)
	if got.Code != 1 || strings.Count(got.Out, "kind: Pod\n") != 4 || strings.Contains(got.Out, "kind: Secret") || strings.Count(got.Err, "\n") != 3 ||
		!strings.Contains(got.Err, "secrets is encrypted: store: no key was given; start the process that holds the file with its key\n") {
		t.Errorf("exit code %d, %s%s", got.Code, got.Out, got.Err)
	}
}

// TestFollowWithoutKey checks that history --follow reports the scopes for which the
// process has no key as errors, and follows the others only.
func TestFollowWithoutKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	writeHistory(t, path)
	db, _ := holdWith(t, path, nil)
	const says = "secrets is encrypted: store: no key was given; start the process that holds the file with its key\n"
	following(t, "history", "secrets", "--follow", "--db", path).ends(t, 1, says)
	w := following(t, "history", "pods,secrets", "--follow", "-o", "name", "--db", path)
	if got := w.next(t, 5); strings.Contains(got, "secret/") {
		t.Errorf("it printed %q", got)
	}
	s := openScope(t, db, store.Scope{Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")})
	defer func() { _ = s.Close() }()
	late := pod("b", "late", "web")
	late.ResourceVersion = "16"
	apply(t, s, store.Batch{RV: "16", Changes: []store.Change{{Object: late}}})
	if got := w.next(t, 1); got != "pod/late\n" {
		t.Errorf("then %q", got)
	}
	w.stop()
	w.ends(t, 0, says)
}
