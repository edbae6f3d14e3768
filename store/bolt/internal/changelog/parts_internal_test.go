package changelog

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// inLog runs fn on a log of commits with one change each, all of one key but the first.
// All but the first are frozen if that is set.
func inLog(t *testing.T, commits int, frozen bool, fn func(*Reader)) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	err = db.Update(func(tx *bbolt.Tx) error {
		scope, err := tx.CreateBucket([]byte("scope"))
		if err != nil {
			return err
		}
		b, err := scope.CreateBucket(layout.Log)
		if err != nil {
			return err
		}
		m := record.NewManifest(store.Scope{Resource: "pods"})
		l := &m.Log
		l.Lineage, l.Begin = "a", 1
		for i := range commits {
			key := "ns/often"
			if i == 0 {
				key = "ns/once"
			}
			entry := record.LogEntry{Number: l.Last + 1, Key: key, RV: fmt.Sprint(i), Kind: record.KindUnknown, Final: []byte("state")}
			l.Last += 2
			mark := record.Mark{
				Number: l.Last, From: fmt.Sprint(i), To: fmt.Sprint(i + 1), Time: int64(i), Frozen: frozen && i > 0, Begins: i == 0,
			}
			setMark(l, mark)
			block := &record.Block{Time: int64(i), Entries: []record.LogEntry{entry}, Mark: &mark}
			if err := b.Put(Key(block.First()), block.Encode(block.First())); err != nil {
				return err
			}
		}
		if err := layout.WriteManifest(scope, m); err != nil {
			return err
		}
		fn(&Reader{
			Scope: m.Scope(), Bucket: scope, Log: *l, StoredRV: l.Mark.To, Logger: logr.Discard(),
			Corrupt: func(_ string, err error) error { return err },
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestMarksOfAPart checks that who follows an object that does not change gets the marks
// of a long log in parts.
func TestMarksOfAPart(t *testing.T) {
	inLog(t, 20_000, false, func(r *Reader) {
		ahead, marks := &Ahead{Filter: store.LogFilter{Names: []string{"once"}}}, 0
		for from, end := uint64(0), false; !end; {
			part, err := r.Read(from, true, ahead)
			if err != nil {
				t.Fatal(err)
			}
			if len(part.Events) > 2*partBytes/markBytes {
				t.Errorf("a part has %d events", len(part.Events))
			}
			for _, e := range part.Events {
				if e.Mark != nil {
					marks++
				}
			}
			from, end = part.Next, part.End
		}
		if marks != 20_000 {
			t.Errorf("%d marks", marks)
		}
	})
}

// TestPartOfClockAhead checks that a part that begins with what was written while the
// clock was ahead has the time of what is before it.
func TestPartOfClockAhead(t *testing.T) {
	inLog(t, 4, false, func(r *Reader) {
		for _, number := range []uint64{r.Log.Last - 3, r.Log.Last - 1} {
			block, err := record.DecodeBlock(number, r.bucket().Get(Key(number)))
			if err != nil {
				t.Fatal(err)
			}
			block.Time = time.Now().Add(24 * time.Hour).UnixNano()
			if err := r.bucket().Put(Key(number), block.Encode(number)); err != nil {
				t.Fatal(err)
			}
		}
		part, err := r.Read(r.Log.Last-1, true, &Ahead{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range part.Events {
			if got := e.Time.UnixNano(); got != 1 {
				t.Errorf("an event has the time %s, want that of the second block", e.Time)
			}
		}
		if len(part.Events) != 2 {
			t.Errorf("%d events", len(part.Events))
		}
	})
}

// TestDamagedState checks that a damaged state in the log is noticed by whoever asks for
// its object, also as the state after an earlier change, and stops nobody else.
func TestDamagedState(t *testing.T) {
	for name, isRead := range map[string]bool{"once": true, "often": false, "": false} {
		t.Run(name, func(t *testing.T) {
			inLog(t, 3, false, func(r *Reader) {
				key := Key(r.Log.Last - 1) // of the last block
				v := bytes.Clone(r.bucket().Get(key))
				v[len(v)-1] ^= 1
				if err := r.bucket().Put(key, v); err != nil {
					t.Fatal(err)
				}
				var names []string
				if name != "" {
					names = []string{name}
				}
				part, err := r.Read(0, true, &Ahead{Filter: store.LogFilter{Names: names}})
				if (err == nil) != isRead {
					t.Fatalf("%d events, error %v", len(part.Events), err)
				}
				if _, err := r.Before(1); err != nil && !errors.Is(err, store.ErrTrimmed) {
					t.Errorf("the state before: %v", err)
				}
			})
		})
	}
}

// TestEachReadable checks that damaged blocks are passed over, also one whose key has
// another length.
func TestEachReadable(t *testing.T) {
	inLog(t, 5, false, func(r *Reader) {
		b := r.bucket()
		first, v := Key(1), bytes.Clone(b.Get(Key(1)))
		err := errors.Join(b.Delete(first), b.Put(append(first, v[0]), v[1:]))
		v = bytes.Clone(b.Get(Key(5)))
		v[len(v)-1] ^= 1
		if err := errors.Join(err, b.Put(Key(5), v)); err != nil {
			t.Fatal(err)
		}
		var read []uint64
		r.EachReadable(func(b *record.Block) bool {
			read = append(read, b.Key)
			return b.Key < 7
		})
		if want := []uint64{3, 7}; !slices.Equal(read, want) {
			t.Errorf("read %d, want %d", read, want)
		}
	})
}

// TestFindAmongFrozen checks that a place is found without reading much more than all of
// a log whose marks cannot be read: that takes memory for each block.
func TestFindAmongFrozen(t *testing.T) {
	inLog(t, 10_000, true, func(r *Reader) {
		all := testing.AllocsPerRun(1, func() {
			if _, err := r.marks(1, r.Log.Last); err != nil {
				t.Fatal(err)
			}
		})
		found := testing.AllocsPerRun(1, func() {
			if _, err := r.around(store.Place{RV: "5000"}); err != nil {
				t.Fatal(err)
			}
		})
		if found > 4*all {
			t.Errorf("%.0f allocations, and %.0f to read all", found, all)
		}
	})
}

// TestExpiredOfOrdered checks that no block is looked at behind one that is later than
// now if the times of blocks do not decrease, and that the answer is that of looking.
func TestExpiredOfOrdered(t *testing.T) {
	inLog(t, 50, false, func(r *Reader) {
		b := r.Bucket.Bucket(layout.Log)
		for now := range int64(50) {
			for _, age := range []int64{1, 10} {
				looks := trimming{LogState: &record.LogState{}, age: time.Duration(age), now: now}
				knows := looks
				knows.LogState = &record.LogState{Ordered: 1}
				c := b.Cursor()
				for k, v := c.First(); k != nil; k, v = c.Next() {
					if want, got := looks.isExpired(b, k, v), knows.isExpired(b, k, v); got != want {
						t.Fatalf("at %d with age %d, block %x: %t, want %t", now, age, k, got, want)
					}
				}
				if knows.ahead != 0 {
					t.Fatalf("at %d, blocks were looked at up to %d", now, knows.ahead)
				}
			}
		}
	})
}
