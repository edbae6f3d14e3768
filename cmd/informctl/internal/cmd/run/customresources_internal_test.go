package run

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/informctl/informctl/cmd/informctl/internal/cluster"
)

// TestIsHome checks that the resources of another cluster, to which the address leads for
// a while, are not taken for those of the cluster that is followed.
func TestIsHome(t *testing.T) {
	uid := "a"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path != "/api/v1/namespaces/kube-system" || uid == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"` + uid + `"}}`))
	}))
	defer server.Close()
	srv, err := cluster.NewServer(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	fs := &followers{cluster: &connection{Server: srv}}
	if fs.cluster.identity, err = srv.Identify(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := fs.isHome(t.Context()); err != nil {
		t.Errorf("the same cluster: %v", err)
	}
	uid = "b"
	if err := fs.isHome(t.Context()); err == nil || !strings.Contains(err.Error(), "the server is the cluster") {
		t.Errorf("another cluster: %v", err)
	}
	uid = ""
	if err := fs.isHome(t.Context()); err == nil || !cluster.Passes(err) {
		t.Errorf("a server that does not answer: %v", err)
	}
}

// TestAllowedByWatch checks that a resource whose list was refused counts as allowed when
// a watch streams it, and that one whose watch was refused does not when it is listed.
func TestAllowedByWatch(t *testing.T) {
	for _, test := range []struct {
		refused, answered string
		isDenied          bool
	}{{"list", "watch", false}, {"watch", "watch", false}, {"list", "list", false}, {"watch", "list", true}} {
		f := &follower{refused: test.refused, denied: true, outages: &outages{}}
		if f.answered(test.answered, nil); f.isDenied() != test.isDenied {
			t.Errorf("refused to %s, and then a %s: denied %t, want %t", test.refused, test.answered, f.isDenied(), test.isDenied)
		}
	}
}
