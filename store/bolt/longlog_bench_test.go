package bolt_test

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

var (
	benchChanges = flag.Int("bolt.changes", 20_000, "how many changes of pods the long log holds")
	benchFile    = flag.String("bolt.file", "", "where the long log is made, if it is not there, and kept")
)

// BenchmarkLongLog measures reads of a log of many changes, as of a day. 24 hours of
// 50,000 pods that change 20 times a second are:
//
//	go test ./store/bolt -run '^$' -bench LongLog -timeout 60m -bolt.pods 50000 \
//		-bolt.changes 1728000 -bolt.file /tmp/day.db
func BenchmarkLongLog(b *testing.B) {
	path := *benchFile
	if path == "" {
		path = filepath.Join(b.TempDir(), "day.db")
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		makeLongLog(b, path)
	}
	db, err := bolt.OpenReadOnly(path, bolt.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	s, _, err := db.View(podScope.ID())
	if err != nil {
		b.Fatal(err)
	}
	state, err := s.History()
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%d changes in %d MiB", state.Entries, state.Bytes>>20)
	began, ended := state.Oldest.Time, state.Last.Time
	last := store.Place{RV: fmt.Sprint(2000 + *benchChanges/2000*1980)}
	for name, p := range map[string]store.Place{
		"rv":   last,
		"time": {Time: ended.Add(-ended.Sub(began) / 100)},
	} {
		b.Run("find/"+name, func(b *testing.B) {
			for b.Loop() {
				for _, err := range s.Follow(b.Context(), p) {
					if err != nil {
						b.Fatal(err)
					}
					break
				}
			}
		})
	}
	b.Run("at", func(b *testing.B) {
		for b.Loop() {
			if keys, err := s.Keys(store.Query{At: last}); err != nil || len(keys) != *benchPods {
				b.Fatal(len(keys), err)
			}
		}
	})
	for name, f := range map[string]store.LogFilter{"one": {Names: []string{testobjects.Pod(7, 1).Name}}, "all": {}} {
		b.Run("read/"+name, func(b *testing.B) {
			for b.Loop() {
				n := 0
				for _, err := range store.FollowSome(b.Context(), s, store.Place{}, f) {
					if err != nil {
						b.Fatal(err)
					}
					n++
				}
				b.ReportMetric(float64(n), "events")
			}
		})
	}
}

// makeLongLog writes a file of pods and of changes, 20 in a commit.
func makeLongLog(b *testing.B, path string) {
	b.Helper()
	c, err := codec.For(testobjects.Pod(0, 1))
	if err != nil {
		b.Fatal(err)
	}
	db, err := bolt.Open(path, bolt.Options{HistoryBytes: 64 << 30})
	if err != nil {
		b.Fatal(err)
	}
	s, err := db.Open(podScope, store.Options{Codec: c, History: store.History{Bytes: math.MaxInt64}})
	if err != nil {
		b.Fatal(err)
	}
	listPods(b, s, *benchPods, 1)
	flushed(b, s)
	const each = 20
	for n := 0; n < *benchChanges; n += each {
		applied(b, s, podChanges(n, min(each, *benchChanges-n)))
		flushed(b, s)
	}
	closed(b, db)
}
