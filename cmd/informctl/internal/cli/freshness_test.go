package cli_test

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
)

// TestAge checks that commands that print objects say when these are old, and why.
func TestAge(t *testing.T) {
	pods := informer.Status{
		Scope:  informer.ScopeStatus{ID: store.Scope{Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")}.ID()},
		Synced: true, CaughtUp: true, Checkpoint: informer.CheckpointStatus{RV: "1000", Time: now.Add(-23 * time.Minute)},
	}
	cut, late := pods, pods
	cut.LastError = "dial tcp 10.0.0.1:443: connection refused"
	late.CaughtUp = false
	const unfollowed = "informctl: as of 0s ago; nothing follows deployments.apps\n"
	for name, tt := range map[string]struct {
		statuses []informer.Status
		resource string
		want     string
	}{
		"followed":     {[]informer.Status{pods}, "pods", ""},
		"disconnected": {[]informer.Status{cut}, "pods", "informctl: as of 23m ago; disconnected from the server, and informctl status says why\n"},
		"catching up":  {[]informer.Status{late}, "pods", "informctl: as of 23m ago; not caught up with the server yet\n"},
		"one of two":   {[]informer.Status{pods}, "pods,deployments", unfollowed},
		"another":      {[]informer.Status{pods}, "deployments", unfollowed},
		"nothing":      {nil, "pods,deployments", "informctl: as of 0s ago; nothing follows this file\n"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			writeFile(t, path)
			holdServing(t, path, nil, func(h http.Handler) http.Handler {
				mux := http.NewServeMux()
				mux.Handle("/", h)
				mux.HandleFunc("/v1/status", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(tt.statuses) })
				return mux
			})
			for _, command := range []string{"query", "dump"} {
				if got := say(t.Context(), command, tt.resource, "--db", path); got.Code != 0 || got.Err != tt.want {
					t.Errorf("%s: exit code %d, %q, want %q", command, got.Code, got.Err, tt.want)
				}
			}
		})
	}
}
