package cluster_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/informctl/informctl/cmd/informctl/internal/cluster"
)

// TestPasses checks which errors of the first requests a command waits for.
func TestPasses(t *testing.T) {
	resource := schema.GroupResource{Resource: "pods"}
	answer := func(code int) error {
		return apierrors.NewGenericServerResponse(code, "get", resource, "", "", 0, true)
	}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"nobody listens":      {fmt.Errorf("dial: %w", syscall.ECONNREFUSED), true},
		"a server that fails": {fmt.Errorf("identify: %w", answer(http.StatusInternalServerError)), true},
		"a proxy's 502":       {answer(http.StatusBadGateway), true},
		"503":                 {answer(http.StatusServiceUnavailable), true},
		"forbidden":           {answer(http.StatusForbidden), false},
		"not found":           {answer(http.StatusNotFound), false},
		"no such resource":    {errors.New("the server has no resource"), false},
	} {
		if got := cluster.Passes(test.err); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

// TestUnsaidGroup resolves resources while the service of an aggregated API does not
// answer: one of its group may be there, and is waited for.
func TestUnsaidGroup(t *testing.T) {
	answers := map[string]string{
		"/api":    `{"kind":"APIVersions","versions":["v1"]}`,
		"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get","list","watch"]}]}`,
		"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"agg.example.com","versions":[{"groupVersion":"agg.example.com/v1","version":"v1"}],
			"preferredVersion":{"groupVersion":"agg.example.com/v1","version":"v1"}}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if answers[r.URL.Path] == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte(answers[r.URL.Path]))
	}))
	defer server.Close()
	srv, err := cluster.NewServer(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	cached, mapper, err := srv.Mapper(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		text   string
		passes bool
	}{
		"pods":                          {"", false},
		"widgets.agg.example.com":       {"the server did not say what agg.example.com/v1 has: ", true},
		"gadgets.other.agg.example.com": {`the server has no resource "gadgets.other.agg.example.com"`, false},
		"widgets.v1.agg.example.com":    {"the server did not say what agg.example.com/v1 has: ", true},
		"gadgets.example.com":           {`the server has no resource "gadgets.example.com"`, false},
	} {
		_, err := cluster.MappingsOf(t.Context(), cached, mapper, []string{name})
		if test.text == "" && err != nil || test.text != "" && (err == nil || !strings.HasPrefix(err.Error(), test.text) || cluster.Passes(err) != test.passes) {
			t.Errorf("%s: %v, want %q", name, err, test.text)
		}
	}
}
