package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/informctl/informctl/cmd/informctl/internal/cli"
	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/inspect"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// hold holds a file and answers queries, as a live process does, until stop is called.
func hold(t testing.TB, path string) (db *bolt.DB, stop func()) {
	t.Helper()
	return holdWith(t, path, testKeys(t))
}

func holdWith(t testing.TB, path string, keys codec.KeyProvider) (db *bolt.DB, stop func()) {
	t.Helper()
	return holdServing(t, path, keys, func(h http.Handler) http.Handler { return h })
}

// holdServing answers with what serve makes of the handler.
func holdServing(t testing.TB, path string, keys codec.KeyProvider, serve func(http.Handler) http.Handler) (db *bolt.DB, stop func()) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- inspect.Serve(ctx, inspect.SocketPath(path), serve(inspect.NewHandler(inspect.Of(db))))
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-served, db.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	listens(t, path)
	return db, stop
}

// listens blocks until a process listens on the socket of the file.
func listens(t testing.TB, path string) {
	t.Helper()
	for t.Context().Err() == nil {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "unix", inspect.SocketPath(path))
		if err == nil {
			_ = c.Close()
			return
		}
	}
}

// said is the output and the exit code of a command.
type said struct {
	Out, Err string
	Code     int
}

func say(ctx context.Context, args ...string) said {
	var out, errOut bytes.Buffer
	code := cli.MainAt(ctx, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}, args, now)
	return said{out.String(), errOut.String(), code}
}

// inEachForm returns a command with each output format.
func inEachForm(args ...string) (out [][]string) {
	for _, form := range [][]string{
		nil,
		{"-o", "wide"},
		{"-o", "json"},
		{"-o", "yaml"},
		{"-o", "name"},
		{"--count"},
		{"--no-headers"},
		{"--show-labels"},
		{"-o", "wide", "-L", "app"},
		{"-o", "json", "--show-managed-fields"},
		{"-o", "jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {.data} {.stringData}{\"\\n\"}{end}"},
		{"-o", "go-template={{range .items}}{{.metadata.name}} {{end}}"},
		{"-o", "custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[*].image,DATA:.data"},
	} {
		out = append(out, append(append([]string{}, args...), form...))
	}
	return out
}

// readingCommands returns the commands whose output does not depend on whether a process
// holds the file.
func readingCommands() (out [][]string) {
	for _, args := range [][]string{
		{"dump"},
		{"dump", "pods"},
		{"dump", "secrets"},
		{"dump", "secrets", "--show-secrets"},
		{"dump", "pods", "-n", "a"},
		{"dump", "-l", "app=web"},
		{"dump", "pods", "-l", "app!=web"},
		{"dump", "services"},
		{"dump", "wheels"},
		{"dump", "configmaps"},
		{"query", "all"},
		{"query", "gd", "-n", "a"},
		{"query", "gadgets", "one"},
		{"query", "pods", "--index", "namespace=a"},
		{"query", "pods", "-n", "a", "web-1", "nosuch"},
		{"query", "pods/web-1"},
		{"query", "pods", "-n", "none"},
		{"query", "--index", "namespace=a"},
		{"query", "pods", "--index", "nosuch=a"},
		{"query", "pods", "-n", "a", "-l", "app in (web,job)", "--explain"},
		{"query", "secrets", "--where", `"data" in object`},
		{"query", "pods", "--field-selector", "spec.nodeName=node-1", "--explain"},
		{"query", "pods", "--where", `object.spec.nodeName == "node-1"`, "--limit", "2", "--explain"},
		{"query", "pods", "--sort-by", ".spec.nodeName"},
		{"query", "pods", "--since", "3d"},
	} {
		out = append(out, inEachForm(args...)...)
	}
	out = append(out, [][]string{
		{"history"},
		{"history", "-o", "wide"},
		{"history", "-o", "json"},
		{"history", "-o", "yaml"},
		{"history", "-o", "name"},
		{"history", "pods", "--deleted"},
		{"history", "pods", "-n", "b", "--no-headers"},
		{"history", "pods/kept"},
		{"history", "secrets"},
		{"history", "secrets", "--show-secrets"},
		{"history", "wheels"},
		{"history", "pods", "-l", "app=db"},
		{"history", "--field-selector", "status.phase=Running"},
		{"history", "pods", "--where", "object == null"},
		{"history", "--since", "2000-01-01T00:00:00Z"},
		{"query", "pods", "--at", "12"},
		{"query", "pods", "kept", "-n", "a", "--at", "10", "-o", "yaml"},
		{"dump", "pods", "--at", "14", "-l", "app=web"},
		{"dump", "--at", "3"},
		{"query", "pods", "--at", "99"},
	}...)
	return append(
		out,
		[]string{"query", "pods", "--group-by", "spec.nodeName"},
		[]string{"query", "pods", "--group-by", "spec.nodeName", "-o", "json"},
		[]string{"info"}, []string{"info", "-o", "json"},
		[]string{"indexes"}, []string{"indexes", "pods", "-o", "json"}, []string{"indexes", "wheels"},
		[]string{"indexes", "secrets"}, []string{"indexes", "secrets", "--show-secrets"},
		[]string{"verify"}, []string{"export"}, []string{"export", "wheels"},
		[]string{"export", "secrets"}, []string{"export", "secrets", "--show-secrets"},
	)
}

// TestLiveIsAsClosed checks that every reading command prints the same bytes for a closed
// file and for a file that a live process holds.
func TestLiveIsAsClosed(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte(testKey), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("INFORMCTL_KEY_FILE", key)
	for name, write := range map[string]func(*testing.T, string){"informers.db": writeFile, "more.db": writeMore, "many.db": writeMany, "log.db": writeHistory, "scopes.db": writeScopes, "tables.db": writeTables} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, name)
			write(t, path)
			closed := map[string]said{}
			for _, args := range readingCommands() {
				closed[fmt.Sprint(args)] = say(t.Context(), append(args, "--db", path)...)
			}
			_, _ = hold(t, path)
			for _, args := range readingCommands() {
				got := say(t.Context(), append(args, "--db", path)...)
				if diff := cmp.Diff(closed[fmt.Sprint(args)], got); diff != "" {
					t.Errorf("%q (-closed +live):\n%.2000s", args, diff)
				}
			}
		})
	}
}

// writeMany makes a file with a dictionary, more objects than one query returns, and
// forms that the other files lack.
func writeMany(t *testing.T, path string) {
	t.Helper()
	if err := copyFile(podFile(t, smallPod), path); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, bolt.Options{Keys: testKeys(t)})
	if err != nil {
		t.Fatal(err)
	}
	m := &metav1.PartialObjectMetadata{ObjectMeta: objectMeta("a", "login", "web")}
	m.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "hunter2"}
	fill(t, db, corev1.SchemeGroupVersion.WithKind("Secret"), "secrets", store.Metadata, m)
	fill(t, db, corev1.SchemeGroupVersion.WithKind("Pod"), "pods", store.Metadata, m)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLiveShowsNoSecrets checks that the process sends no value of a Secret unless the
// client requests it.
func TestLiveShowsNoSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "more.db")
	writeMore(t, path)
	db, _ := hold(t, path)
	infos, err := db.Scopes()
	if err != nil {
		t.Fatal(err)
	}
	for _, show := range []string{"redact", "show"} {
		var all bytes.Buffer
		for _, info := range infos {
			if info.Scope.Resource != "secrets" {
				continue
			}
			for _, question := range []string{"records?key=a/login&key=b/token", "index?name=namespace", "keys?index=namespace&value=a"} {
				if strings.HasPrefix(question, "keys") {
					question += "&scope=" + info.ID
				} else {
					question += "&secrets=" + show + "&scope=" + info.ID
				}
				_, _ = all.Write(askSocket(t, path, "/v1/"+question))
			}
		}
		for _, secret := range []string{"hunter2", "aHVudGVyMg=="} {
			if got := strings.Contains(all.String(), secret); got != (show == "show") {
				t.Errorf("secrets=%s: %s is in what is sent: %t", show, secret, got)
			}
		}
		if !strings.Contains(all.String(), "a/login") || !strings.Contains(all.String(), "b/token") {
			t.Errorf("secrets=%s: not both Secrets are sent", show)
		}
	}
}

func askSocket(t *testing.T, path, question string) []byte {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "unix", inspect.SocketPath(path))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.0\r\n\r\n", question); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.0 200")) {
		t.Fatalf("%s: %.200s, %v", question, answer, err)
	}
	return answer
}

// TestManyDumpsOfOneProcess checks that many concurrent dumps wait for each other, and
// that a refused one reports it.
func TestManyDumpsOfOneProcess(t *testing.T) {
	path := podFile(t, smallPod)
	want := say(t.Context(), "dump", "pods", "-o", "json", "--db", path)
	_, _ = hold(t, path)
	all := make([]said, 50)
	var dumps sync.WaitGroup
	for i := range all {
		dumps.Go(func() { all[i] = say(t.Context(), "dump", "pods", "-o", "json", "--db", path) })
	}
	dumps.Wait()
	refused := 0
	for i, got := range all {
		if got.Code == 1 && strings.Count(got.Err, "\n") == 1 && strings.Contains(got.Err, "busy with 4 such requests; try again") {
			refused++
			continue
		}
		if got != want {
			t.Errorf("dump %d: exit code %d, %d bytes of %d, %s", i, got.Code, len(got.Out), len(want.Out), got.Err)
		}
	}
	if t.Logf("%d of %d were refused", refused, len(all)); refused == len(all) {
		t.Error("none was answered")
	}
}

// TestLiveTrouble checks that every problem with the process is reported in one line.
func TestLiveTrouble(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(t *testing.T, path string)
		want    string // "" means no error: the file is read
	}{
		"a dead socket of a file that is free": {func(t *testing.T, path string) { deadSocket(t, path) }, ""},
		"a dead socket of a file that is held": {func(t *testing.T, path string) {
			deadSocket(t, path)
			holdSilently(t, path)
		}, "is in use by another process, which does not answer at "},
		"a file instead of a socket": {func(t *testing.T, path string) {
			if err := os.WriteFile(inspect.SocketPath(path), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			holdSilently(t, path)
		}, "is in use by another process, which does not answer at "},
		"the process of another file": {func(t *testing.T, path string) {
			other := path + "2"
			writeFile(t, other)
			db, _ := hold(t, other)
			_ = db
			if err := os.Symlink(inspect.SocketPath(other), inspect.SocketPath(path)); err != nil {
				t.Fatal(err)
			}
			holdSilently(t, path)
		}, "keeps another file than "},
		"a process that ends before it answers": {func(t *testing.T, path string) {
			l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", inspect.SocketPath(path))
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					_ = c.Close()
				}
			}()
			t.Cleanup(func() { _ = l.Close(); <-ended })
			holdSilently(t, path)
		}, "has ended before it had answered"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			writeFile(t, path)
			tt.prepare(t, path)
			for _, args := range [][]string{{"dump", "pods"}, {"query", "pods", "-n", "a"}, {"info"}, {"indexes"}, {"export", "pods"}, {"verify"}, {"snapshot", path + ".out"}} {
				got := say(t.Context(), append(args, "--db", path)...)
				switch {
				case tt.want == "" && got.Code == 0:
				case tt.want != "" && got.Code == 1 && got.Out == "" && strings.Count(got.Err, "\n") == 1 && strings.Contains(got.Err, tt.want):
				default:
					t.Errorf("%s: exit code %d, %q, %q", args[0], got.Code, got.Out, got.Err)
				}
			}
			if got := say(t.Context(), "diff", path, path); tt.want != "" && (got.Code != 4 || !strings.Contains(got.Err, tt.want)) {
				t.Errorf("diff: exit code %d, %q", got.Code, got.Err)
			}
		})
	}
}

// deadSocket leaves a socket without a listener, as a killed process does.
func deadSocket(t *testing.T, path string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", inspect.SocketPath(path))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// holdSilently holds a file without serving queries.
func holdSilently(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{Keys: testKeys(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
}

// TestLiveSnapshot checks that the copy that a process makes is whole, and that commands
// that need the file itself report that it is in use.
func TestLiveSnapshot(t *testing.T) {
	path := podFile(t, smallPod)
	t.Setenv("TMPDIR", t.TempDir())
	want := say(t.Context(), "export", "--db", path)
	_, _ = hold(t, path)
	out := path + ".out"
	if got := say(t.Context(), "snapshot", out, "--db", path); got.Code != 0 || got.Out+got.Err != "" {
		t.Errorf("snapshot: %+v", got)
	}
	if got := say(t.Context(), "export", "--db", out); got != want {
		t.Errorf("the copy holds something else: exit code %d, %s", got.Code, got.Err)
	}
	if got := say(t.Context(), "snapshot", out, "--db", path); got.Code != 1 || !strings.Contains(got.Err, "exists already") {
		t.Errorf("a second snapshot: %+v", got)
	}
	if got := say(t.Context(), "compact", "--db", path); got.Code != 1 || strings.Count(got.Err, "\n") != 1 || !strings.Contains(got.Err, "is in use by another process") {
		t.Errorf("compact: %+v", got)
	}
	for _, command := range []string{"verify", "export"} {
		if got := say(t.Context(), command, "--db", path); got.Code != 0 {
			t.Errorf("%s: %s", command, got.Err)
		}
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestLiveCopyOnFUSE checks that a copy may be made in a temporary directory on FUSE, and
// is removed, and so may a snapshot, which stays. A file there is not read.
func TestLiveCopyOnFUSE(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "bindfs", t.TempDir(), dir).CombinedOutput(); err != nil {
		t.Skipf("NOT TESTED, bindfs (FUSE) does not run: %v %s", err, out)
	}
	defer func() {
		if out, err := exec.CommandContext(t.Context(), "fusermount", "-u", dir).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}()
	path := podFile(t, smallPod)
	t.Setenv("TMPDIR", dir)
	_, _ = hold(t, path)
	for _, command := range []string{"verify", "export"} {
		if got := say(t.Context(), command, "--db", path); got.Code != 0 || got.Err != "" {
			t.Errorf("%s: %+v", command, got)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	there := filepath.Join(dir, "informers.db")
	if got := say(t.Context(), "snapshot", there, "--db", path); got.Code != 0 || got.Err != "" {
		t.Errorf("snapshot: %+v", got)
	}
	if got := say(t.Context(), "info", "--db", there); got.Code == 0 || !strings.Contains(got.Err, there+" is on FUSE") {
		t.Errorf("a file on FUSE: %+v", got)
	}
}

// TestLiveWhileItChanges checks that a command leaves out objects that are deleted
// between two of its queries.
func TestLiveWhileItChanges(t *testing.T) {
	path := podFile(t, smallPod)
	db, _ := hold(t, path)
	infos, err := db.Scopes()
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Open(infos[0].Scope, store.Options{Indexes: []index.Index{index.Namespace(), index.Label("app"), index.Label("app=b")}})
	if err != nil {
		t.Fatal(err)
	}
	keys := store.Indexer(s).ListKeys()
	stop := make(chan struct{})
	var changing sync.WaitGroup
	changing.Go(func() {
		for _, key := range keys {
			select {
			case <-stop:
				return
			default:
			}
			if err := s.Apply(store.Batch{Changes: []store.Change{{Key: key}}}); err != nil {
				t.Error(err)
			}
			if got := say(t.Context(), "query", "pods", "--where", "object.metadata.name != ''", "-o", "json", "--db", path); got.Code != 0 {
				t.Errorf("exit code %d: %s", got.Code, got.Err)
			}
		}
	})
	for range 20 {
		for _, args := range [][]string{{"dump", "pods", "-o", "yaml"}, {"query", "pods", "-n", "a", "-l", "app=web"}, {"info"}, {"indexes"}} {
			if got := say(t.Context(), append(args, "--db", path)...); got.Code != 0 {
				t.Errorf("%q: exit code %d: %s", args, got.Code, got.Err)
			}
		}
	}
	close(stop)
	changing.Wait()
}
