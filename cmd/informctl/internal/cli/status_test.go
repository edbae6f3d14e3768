package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/informctl/informctl/cmd/informctl/internal/cli"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/inspect"
)

// serveStatus serves the statuses on the socket of the file.
func serveStatus(t *testing.T, path string, statuses ...informer.Status) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/status", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(statuses) })
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- inspect.Serve(ctx, inspect.SocketPath(path), mux) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	listens(t, path)
}

func runCommand(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = cli.Main(t.Context(), genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}, args)
	return out.String(), errOut.String(), code
}

// TestStatus checks that status prints a line for each informer, and that the exit code
// shows whether all informers are healthy.
func TestStatus(t *testing.T) {
	well := informer.Status{
		Scope: informer.ScopeStatus{Resource: "pods", Namespace: "default"}, Synced: true, CaughtUp: true,
		Start: "resumed", Objects: 42, Checkpoint: informer.CheckpointStatus{RV: "1234", Time: time.Now().Add(-17 * time.Minute)},
		LastBookmark: time.Now().Add(-19 * time.Minute), LastEvent: time.Now().Add(-5 * time.Minute), Commits: &informer.CommitStatus{PendingBytes: 77},
	}
	late := well
	late.CaughtUp, late.Behind = false, "the watch replays"
	late.Start, late.StartReason = "listed", "history was rewound: from 9 to 7"
	hung := well
	hung.Time = time.Now().Add(-10 * time.Minute)
	cut := well
	cut.LastError = "dial tcp: connection refused"
	full := well
	full.Commits = &informer.CommitStatus{Degraded: true, Error: "no space left on device"}
	for name, tt := range map[string]struct {
		status informer.Status
		code   int
		want   []string
	}{
		"well": {well, 0, []string{"pods", "default", "caught up", "42", "1234", "resumed", "17m", "5m", "19m", "77"}},
		"late": {late, 1, []string{"synced, not caught up", "the watch replays", "listed: history was rewound  "}},
		"hung": {hung, 1, []string{"caught up", "not seen for 10m"}},
		"cut":  {cut, 1, []string{"disconnected", "17m", "connection refused"}},
		"full": {full, 1, []string{"no space left on device"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			serveStatus(t, path, tt.status)
			stdout, stderr, code := runCommand(t, "status", "--db", path)
			if code != tt.code || stderr != "" {
				t.Errorf("exit code %d, want %d; %s", code, tt.code, stderr)
			}
			for _, want := range tt.want {
				if !strings.Contains(stdout, want) {
					t.Errorf("%q is not in\n%s", want, stdout)
				}
			}
			if stdout, _, _ = runCommand(t, "status", "--db", path, "-o", "json"); !json.Valid([]byte(stdout)) {
				t.Errorf("no JSON: %s", stdout)
			}
		})
	}
}

// TestStatusOfSeveral checks that status says in one line with how many of several scopes
// something is wrong.
func TestStatusOfSeveral(t *testing.T) {
	well := informer.Status{Scope: informer.ScopeStatus{Resource: "pods"}, Synced: true, CaughtUp: true}
	cut, listing := well, well
	cut.LastError = "dial tcp: connection refused"
	listing.CaughtUp, listing.Synced, listing.Listing, listing.Listed = false, false, "first list", 7
	for name, tt := range map[string]struct {
		statuses []informer.Status
		want     string
	}{
		"well": {[]informer.Status{well, well}, ""},
		"some": {
			[]informer.Status{cut, well, listing, cut},
			"informctl: something is wrong with 3 of 4 scopes: 2 disconnected, 1 listing\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			serveStatus(t, path, tt.statuses...)
			if _, stderr, _ := runCommand(t, "status", "--db", path); stderr != tt.want {
				t.Errorf("%q, want %q", stderr, tt.want)
			}
			if _, stderr, _ := runCommand(t, "status", "--db", path, "-o", "json"); stderr != "" {
				t.Errorf("with JSON: %q", stderr)
			}
		})
	}
}

// TestStatusOfNobody checks that status prints one line if no process answers.
func TestStatusOfNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	writeFile(t, path)
	stdout, stderr, code := runCommand(t, "status", "--db", path)
	if code != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "no process answers for "+path) {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	holdSilently(t, path)
	for _, command := range []string{"status", "watch", "info"} {
		_, stderr, code = runCommand(t, command, "--db", path)
		if code != 1 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "in use by another process") || !strings.Contains(stderr, "inspect.Serve") {
			t.Errorf("%s of a process that does not serve: exit code %d, %q", command, code, stderr)
		}
	}
}
