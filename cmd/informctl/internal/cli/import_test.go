package cli_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestImportedForAnInformer checks what an informer finds in an imported file: objects
// that are as old as the export and of its transform, and no Secrets without values.
func TestImportedForAnInformer(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte(testKey), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("INFORMCTL_KEY_FILE", key)
	for name, c := range map[string]struct {
		header, scope string // of a Secret of two hours ago
		maxAge        time.Duration
		objects       int
	}{
		"whole":                {objects: 1},
		"young enough":         {maxAge: 3 * time.Hour, objects: 1},
		"too old":              {maxAge: time.Hour},
		"redacted":             {header: `"redacted":true,`},
		"of another transform": {scope: `"transformVersion":"slim",`},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			scope := `"resource":"secrets","apiVersion":"v1","kind":"Secret","form":"typed","resourceVersion":"10","objects":1,"time":"` +
				time.Now().Add(-2*time.Hour).UTC().Format(time.RFC3339) + `"}}`
			export := filepath.Join(t.TempDir(), "export.jsonl")
			secrets := codec.ForKind(corev1.SchemeGroupVersion.WithKind("Secret"))
			lines := `{"informctlExport":1,"typeFingerprint":"` + secrets.Fingerprint() + `",` + c.header + `"following":0,"scope":{` + c.scope + scope + "\n" +
				`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s","namespace":"a"},"data":{"password":"REDACTED"}}` + "\n"
			if err := os.WriteFile(export, []byte(lines), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := say(t.Context(), "import", export, "--db", path); got.Code != 0 {
				t.Fatal(got.Err)
			}
			db, err := bolt.Open(path, bolt.Options{Keys: testKeys(t), MaxAge: c.maxAge})
			if err != nil {
				t.Fatal(err)
			}
			kind := corev1.SchemeGroupVersion.WithKind("Secret")
			s, err := db.Open(store.Scope{Resource: "secrets", Kind: kind}, store.Options{Codec: codec.ForKind(kind)})
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Len(); got != c.objects {
				t.Errorf("%d objects, want %d: %+v", got, c.objects, s.Checkpoint())
			}
			if cp := s.Checkpoint(); (cp.RV != "") != (c.objects > 0) {
				t.Errorf("checkpoint %+v", cp)
			}
			if err := errors.Join(s.Close(), db.Close()); err != nil {
				t.Fatal(err)
			}
		})
	}
}
