package relay

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

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
