package cli_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestLiveHistoryEnds checks that history of a file that a process holds ends, also where
// nothing was changed since the time that is asked for, and takes several names.
func TestLiveHistoryEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "day.db")
	synctest.Test(t, func(t *testing.T) { writeDay(t, path) })
	hold(t, path)
	for _, args := range [][]string{
		{"--since", "2000-01-03T00:00:00Z"},
		{"--since", "2000-01-03T00:00:00Z", "--until", "2000-01-04T00:00:00Z"},
		{"one", "two", "--tail", "1"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		got := say(ctx, append([]string{"history", "configmaps", "--db", path}, args...)...)
		if ctx.Err() != nil || got.Code != 0 {
			t.Errorf("%q: %v, exit code %d, %s%s", args, ctx.Err(), got.Code, got.Out, got.Err)
		}
		cancel()
	}
}

// TestHistoryOfRewound checks that the history of a file can be read, and resources be
// named, whose server's history was rewound and was not listed again yet.
func TestHistoryOfRewound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "day.db")
	synctest.Test(t, func(t *testing.T) { writeDay(t, path) })
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := codec.For(&corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Open(store.Scope{Resource: "configmaps", Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}, store.Options{Codec: c})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(store.Batch{Rewound: true, Reason: "history was rewound"}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if got := say(t.Context(), "history", "configmaps", "-o", "name", "--db", path); got.Code != 0 {
		t.Errorf("exit code %d, %s", got.Code, got.Err)
	}
}
