package relay

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// TestLostDocuments has a file lose what is kept of the server while it is open: the next
// fetch brings all of it again, also a schema that has not changed.
func TestLostDocuments(t *testing.T) {
	const schema = openAPIPath + "/api/v1"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := map[string]string{
			versionPath: `{"gitVersion":"v1.37.0"}`, corePath: `{}`, groupsPath: `{}`, schema: `{"openapi":"3.0.0"}`,
			openAPIPath: `{"paths":{"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=1"}}}`,
		}[r.URL.Path]
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	db := openFile(t, filepath.Join(t.TempDir(), "informers.db"))
	d := OpenDocuments(t.Context(), db)
	for range 2 {
		if err := d.Fetch(t.Context(), &rest.Config{Host: server.URL}); err != nil {
			t.Fatal(err)
		}
		if b, ok, err := d.openAPI(t.Context(), schema); string(b) != `{"openapi":"3.0.0"}` || !ok || err != nil {
			t.Errorf("the schema is %q, %v, %v", b, ok, err)
		}
		for _, path := range []string{schema, openAPIPath} {
			if err := db.ReplaceLedger(t.Context(), ledgerOfDocuments+path, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestDocumentsOfAnotherCluster serves one of two clusters of a file: the documents that
// are kept of the other one are not its.
func TestDocumentsOfAnotherCluster(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := map[string]string{
			versionPath: `{"gitVersion":"v1.99.0"}`, corePath: `{}`,
			groupsPath:  `{"items":[{"metadata":{"name":"b.example.com"},"versions":[{"version":"v1","resources":[{"resource":"gadgets","scope":"Cluster"}]}]}]}`,
			openAPIPath: `{"paths":{}}`,
		}[r.URL.Path]
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	db := openFile(t, filepath.Join(t.TempDir(), "informers.db"))
	d := OpenDocuments(t.Context(), db)
	d.Of(t.Context(), "b")
	if err := d.Fetch(t.Context(), &rest.Config{Host: server.URL}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		cluster string
		isTheir bool
	}{{"a", false}, {"b", true}, {"", false}} {
		scope := podScope
		scope.Cluster = test.cluster
		opened := OpenDocuments(t.Context(), db)
		opened.Of(t.Context(), test.cluster)
		d.Of(t.Context(), test.cluster)
		held := Collections{filled(t, db, scope, &corev1.Pod{})}
		for _, documents := range []*Documents{opened, d} {
			s, err := New(held, Options{Token: "x", Documents: documents})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for path, text := range map[string]string{groupsPath: "b.example.com", versionPath: "v1.99.0"} {
				if w := get(t, s, path, ""); strings.Contains(w.Body.String(), text) != test.isTheir {
					t.Errorf("of the cluster %q, %s answers %s, want %s in it: %v", test.cluster, path, w.Body, text, test.isTheir)
				}
			}
			if _, ok, _ := documents.openAPI(t.Context(), openAPIPath); ok != test.isTheir {
				t.Errorf("of the cluster %q there are schemas: %v, want %v", test.cluster, ok, test.isTheir)
			}
		}
	}
}
