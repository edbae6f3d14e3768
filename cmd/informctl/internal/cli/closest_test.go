package cli_test

import (
	"fmt"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestUnknownOfMany checks that the error for an unknown resource lists the closest of
// many.
func TestUnknownOfMany(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		fillScope(t, db, nil, store.Scope{Resource: fmt.Sprintf("others%02d.example.com", i), Kind: corev1.SchemeGroupVersion.WithKind("Pod")})
	}
	fillScope(t, db, nil, store.Scope{Resource: "widgets.example.com", Kind: corev1.SchemeGroupVersion.WithKind("Pod")})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	got := say(t.Context(), "query", "wigdets", "--db", path)
	want := "informctl: unknown resource \"wigdets\"; " + path + " holds 13, of which the closest are widgets.example.com"
	for i := range 2 {
		want += fmt.Sprintf(", others%02d.example.com", i)
	}
	if want += "; informctl info prints all\n"; got.Err != want || got.Code != 1 {
		t.Errorf("exit code %d, %q, want %q", got.Code, got.Err, want)
	}
}
