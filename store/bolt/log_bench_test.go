package bolt_test

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// BenchmarkLog measures what the log costs, beside the same store without one, with pods
// of 10 KB:
//
//	go test ./store/bolt -run '^$' -bench Log -bolt.pods 50000 -count 3
//
// The pairs "commit" write so many changes in one transaction, as a second at that rate
// does, and report the bytes written. "saturated" applies changes as fast as it goes.
func BenchmarkLog(b *testing.B) {
	for _, way := range []struct {
		name    string
		history store.History
	}{{"with", store.History{}}, {"without", store.History{Bytes: -1}}} {
		opts := store.Options{History: way.history}
		b.Run("list/"+way.name, func(b *testing.B) {
			for b.Loop() {
				path := filepath.Join(b.TempDir(), "informers.db")
				db, s := reopened(b, path, opts)
				listPods(b, s, *benchPods, 1)
				flushed(b, s)
				closed(b, db)
			}
		})
		for _, changes := range []int{100, 1000} {
			b.Run(fmt.Sprintf("commit=%d/%s", changes, way.name), func(b *testing.B) {
				db, s := listed(b, opts)
				var written atomic.Int64
				bolt.HookWrites(db, func(next bolt.WriteAt) bolt.WriteAt {
					return func(p []byte, off int64) (int, error) {
						written.Add(int64(len(p)))
						return next(p, off)
					}
				})
				n := 0
				for b.Loop() {
					b.StopTimer()
					batch := podChanges(n, changes)
					n += changes
					b.StartTimer()
					applied(b, s, batch)
					flushed(b, s)
				}
				b.ReportMetric(float64(written.Load())/float64(n), "written-B/change")
				closed(b, db)
			})
		}
		b.Run("saturated/"+way.name, func(b *testing.B) {
			db, s := listed(b, opts)
			n := 0
			for b.Loop() {
				b.StopTimer()
				batch := podChanges(n, 250)
				n += 250
				b.StartTimer()
				applied(b, s, batch)
			}
			flushed(b, s)
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "changes/s")
			closed(b, db)
		})
	}
	b.Run("read", func(b *testing.B) {
		db, s := listed(b, store.Options{})
		state, err := s.History()
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		change := func(times int) {
			for range times {
				applied(b, s, podChanges(n, 1000))
				flushed(b, s)
				n += 1000
			}
		}
		change(5)
		for name, at := range map[string]store.Place{"now": {}, "at": state.Last} {
			b.Run(name, func(b *testing.B) {
				for b.Loop() {
					entries, err := s.Select(store.Query{At: at})
					if err != nil || len(entries) != *benchPods {
						b.Fatal(len(entries), err)
					}
				}
			})
		}
		change(20)
		if state, err = s.History(); err != nil {
			b.Fatal(err)
		}
		b.Logf("the log holds %d of %d changes in %d bytes", state.Entries, n, state.Bytes)
		closed(b, db)
	})
}

func listed(b *testing.B, opts store.Options) (*bolt.DB, store.Store) {
	b.Helper()
	db, s := reopened(b, filepath.Join(b.TempDir(), "informers.db"), opts)
	listPods(b, s, *benchPods, 1)
	flushed(b, s)
	return db, s
}

// podChanges returns n changes of pods from one number on.
func podChanges(from, n int) store.Batch {
	batch := store.Batch{RV: fmt.Sprint(2000 + from + n)}
	for i := range n {
		pod := testobjects.Pod((from+i)%*benchPods, 1)
		pod.Annotations["changed"] = fmt.Sprint(from)
		pod.ResourceVersion = fmt.Sprint(2000 + from + i + 1)
		batch.Changes = append(batch.Changes, store.Change{Object: pod})
	}
	return batch
}

func applied(b *testing.B, s store.Store, batch store.Batch) {
	b.Helper()
	if err := s.Apply(batch); err != nil {
		b.Fatal(err)
	}
}

func flushed(b *testing.B, s store.Store) {
	b.Helper()
	if err := s.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func closed(b *testing.B, db *bolt.DB) {
	b.Helper()
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
}
