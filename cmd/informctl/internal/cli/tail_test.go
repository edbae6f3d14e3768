package cli_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestTailOfLongLog checks that --tail finds the newest changes of a day, of which it
// reads only the last minutes if they are enough.
func TestTailOfLongLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "day.db")
	synctest.Test(t, func(t *testing.T) { writeDay(t, path) })
	lines := func(args ...string) []string {
		got := say(t.Context(), append([]string{"history", "configmaps", "--no-headers", "--db", path}, args...)...)
		if got.Code != 0 {
			t.Fatal(got.Err)
		}
		return strings.Split(strings.TrimSuffix(got.Out, "\n"), "\n")
	}
	all := lines()
	if len(all) != 150 {
		t.Fatalf("%d lines", len(all))
	}
	for _, n := range []int{1, 3, 10, 60, 149, 150, 1000} {
		got, want := lines("--tail", fmt.Sprint(n)), all[max(0, len(all)-n):]
		if !slices.EqualFunc(got, want, isSameLine) {
			t.Errorf("--tail %d:\n%s\nwant\n%s", n, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	until := lines("--until", "2000-01-01T12:00:00Z")
	if got := lines("--until", "2000-01-01T12:00:00Z", "--tail", "5"); !slices.EqualFunc(got, until[len(until)-5:], isSameLine) {
		t.Errorf("--until and --tail:\n%s", strings.Join(got, "\n"))
	}
}

// isSameLine compares lines whose columns may have other widths.
func isSameLine(a, b string) bool { return slices.Equal(strings.Fields(a), strings.Fields(b)) }

// writeDay writes a file with 150 changes, one in ten minutes.
func writeDay(t *testing.T, path string) {
	c, err := codec.For(&corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, bolt.Options{History: store.History{Age: -1}})
	if err != nil {
		t.Fatal(err)
	}
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	s, err := db.Open(store.Scope{Resource: "configmaps", Kind: kind}, store.Options{Codec: c})
	if err != nil {
		t.Fatal(err)
	}
	put := func(rv int) store.Batch {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "one", UID: "1", ResourceVersion: fmt.Sprint(rv)}}
		cm.Data = map[string]string{"rv": fmt.Sprint(rv)}
		return store.Batch{RV: fmt.Sprint(rv), Changes: []store.Change{{Object: cm}}}
	}
	r, err := s.Relist()
	if err != nil {
		t.Fatal(err)
	}
	for b, err := range r.Parts("10") {
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Apply(b); err != nil {
			t.Fatal(err)
		}
	}
	_ = r.Close()
	for rv := 11; rv <= 160; rv++ {
		<-time.After(10 * time.Minute)
		if err := s.Apply(put(rv)); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
