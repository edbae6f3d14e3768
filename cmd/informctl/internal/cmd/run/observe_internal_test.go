package run

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/informctl/informctl/informer"
)

// TestReady checks what a probe is answered: what is wrong with each scope, and nothing
// else.
func TestReady(t *testing.T) {
	now := time.Now()
	well := informer.Status{Time: now, Synced: true, CaughtUp: true, Scope: informer.ScopeStatus{Resource: "pods"}}
	behind := informer.Status{Time: now, Synced: true, Behind: "listing", Scope: informer.ScopeStatus{Resource: "nodes"}}
	for name, test := range map[string]struct {
		all  []informer.Status
		code int
		text string
	}{
		"well":     {[]informer.Status{well}, 200, "ok\n"},
		"behind":   {[]informer.Status{well, behind}, 503, "nodes: listing\n"},
		"nothing":  {nil, 503, "nothing is followed\n"},
		"not seen": {[]informer.Status{{Scope: well.Scope}}, 503, "pods: not caught up\n"},
	} {
		w, mux := httptest.NewRecorder(), http.NewServeMux()
		source := answersOf(&observed{})
		source.NotReady = func(context.Context) []string { return notReady(test.all, now) }
		source.Register(mux)
		if get(t, w, mux, "/readyz"); w.Code != test.code || w.Body.String() != test.text {
			t.Errorf("%s: %d %q, want %d %q", name, w.Code, w.Body, test.code, test.text)
		}
	}
}

// TestProbesBeforeServer checks what a process answers before it has reached its server.
func TestProbesBeforeServer(t *testing.T) {
	mux := http.NewServeMux()
	answersOf(&observed{}).Register(mux)
	informers := "# HELP informctl_informers Informers that were started and have not ended.\n# TYPE informctl_informers gauge\ninformctl_informers 1\n"
	for path, want := range map[string]string{"/healthz": "200 ok\n", "/readyz": "503 the server has not been reached yet\n", "/metrics": "200 " + informers} {
		w := httptest.NewRecorder()
		get(t, w, mux, path)
		if got := fmt.Sprint(w.Code, " ", w.Body); got != want || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
			t.Errorf("%s: %q of type %q, want %q", path, got, w.Header().Get("Content-Type"), want)
		}
	}
}

func get(t *testing.T, w http.ResponseWriter, handler http.Handler, path string) {
	t.Helper()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
}
