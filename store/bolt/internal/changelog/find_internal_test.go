package changelog

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// TestFind looks up places in random logs. What it finds is what store.FindMark finds
// among all marks.
func TestFind(t *testing.T) {
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	searched, found := 0, 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		err := db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket(fmt.Append(nil, seed))
			if err != nil {
				return err
			}
			l, err := randomLog(rng, b)
			if err != nil {
				return err
			}
			l.Above = "" // FindMark does not know it
			r := &Reader{Bucket: b, Log: l, StoredRV: l.Mark.To, Logger: logr.Discard(), Corrupt: func(_ string, err error) error { return err }}
			all, err := r.marks(max(l.Full, l.Begin), l.Last)
			if err != nil {
				return err
			}
			for range 200 {
				p, readable := store.Place{RV: fmt.Sprint(rng.IntN(320))}, rng.IntN(2) == 0
				if rng.IntN(2) == 0 {
					p = store.Place{Time: time.Unix(0, rng.Int64N(700))}
				}
				want, isInside, wantErr := store.FindMark(all, r.StoredRV, p, readable)
				got, inside, err := r.lookUp(p, readable)
				isSame := fmt.Sprint(err) == fmt.Sprint(wantErr)
				if !isSame || err == nil && (got.Mark != all[want].Mark || inside != isInside) {
					t.Fatalf("seed %d: %+v is at %d, %t, %v, want %d, %t, %v", seed, p, got.Mark, inside, err, want, isInside, wantErr)
				}
				if err == nil {
					found++
				}
				if some, err := r.around(p); err == nil && len(some) < len(all)/2 {
					searched++
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d places found, %d of them by a search", found, searched)
	if found < 10_000 || searched < 10_000 {
		t.Error("this tests nothing")
	}
}

// randomLog writes a log to the bucket of a scope. In some logs the clock is set back or
// resource versions decrease; others are in order.
func randomLog(rng *rand.Rand, scope *bbolt.Bucket) (l record.LogState, err error) {
	b, err := scope.CreateBucket(layout.Log)
	if err != nil {
		return l, err
	}
	l = record.LogState{Lineage: "a", Begin: 1 + rng.Uint64N(5)}
	l.Last = l.Begin - 1
	at, rv, from := int64(0), 0, ""
	isOpaque := rng.IntN(20) == 0
	setsBack, rewinds := rng.IntN(3) == 0, rng.IntN(3) == 0
	for range 1 + rng.IntN(100) {
		block := &record.Block{}
		for n := rng.IntN(12); n > 0; n-- {
			l.Last++
			block.Entries = append(block.Entries, record.LogEntry{Number: l.Last, Key: "a"})
			if rng.IntN(4) == 0 {
				if err := b.Put(Key(block.First()), block.Encode(block.First())); err != nil {
					return l, err
				}
				block = &record.Block{}
			}
		}
		at, rv = at+rng.Int64N(10), rv+rng.IntN(5)
		if setsBack && rng.IntN(20) == 0 {
			at -= rng.Int64N(100)
		}
		if rewinds && rng.IntN(20) == 0 {
			rv -= rng.IntN(50)
		}
		l.Last++
		m := record.Mark{
			Number: l.Last, Random: 1, From: from, To: fmt.Sprint(max(rv, 1)), Time: at,
			Frozen: rng.IntN(8) == 0, Listing: rng.IntN(8) == 0, Begins: l.Mark.Number == 0,
		}
		switch {
		case isOpaque && rng.IntN(3) == 0:
			m.To = fmt.Sprintf("opaque-%d", rv)
		case rng.IntN(20) == 0:
			m.To = ""
		}
		if from = m.To; rng.IntN(10) == 0 {
			from = ""
		}
		setMark(&l, m)
		block.Time, block.Mark = at, &m
		if err := b.Put(Key(block.First()), block.Encode(block.First())); err != nil {
			return l, err
		}
	}
	if rng.IntN(2) == 0 {
		l.Full = rng.Uint64N(l.Last)
	}
	return l, nil
}
