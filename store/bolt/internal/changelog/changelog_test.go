package changelog_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/content"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/pack"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// scope is a scope with a log, without a store.
type scope struct {
	*testing.T
	db      *bbolt.DB
	id      string
	packer  *pack.Packer
	sum     changelog.Sum
	state   changelog.State
	bound   int64
	settled uint64
	rv      int
	waiting []*overlay.Entry
}

var bucket = []byte("scope")

func open(t *testing.T, bound int64) *scope {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	packer, err := pack.New(pack.Options{Codec: 1, Spent: func(time.Time) {}})
	if err != nil {
		t.Fatal(err)
	}
	m := record.NewManifest(store.Scope{Cluster: "c", Resource: "pods"})
	m.Complete = true
	s := &scope{T: t, db: db, id: m.Scope().ID(), packer: packer, bound: bound}
	s.sum.Max, s.sum.Exceeded = 1<<30, func() {}
	s.state.Sum = &s.sum
	s.state.Opened(m)
	s.update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket(bucket)
		if err != nil {
			return err
		}
		return layout.CreateContent(b, m)
	})
	return s
}

func (s *scope) update(fn func(tx *bbolt.Tx) error) {
	s.Helper()
	if err := s.db.Update(fn); err != nil {
		s.Fatal(err)
	}
}

// apply applies a change; size is that of the object, 0 for a deletion.
func (s *scope) apply(key string, size int, departs uint64) {
	e := &overlay.Entry{Key: key, Name: key, Departs: departs}
	for _, waits := range s.waiting { // departs in the place of one that it replaces
		if waits.Key == key && departs == 0 {
			e.Departs = waits.Departs
		}
	}
	s.rv++
	if size > 0 {
		e.Payload.Bytes = []byte(strings.Repeat("x", size))
		e.Head = &record.Header{RV: fmt.Sprint(s.rv), Hash: fmt.Append(nil, s.rv)}
	}
	b := store.Batch{RV: fmt.Sprint(s.rv)}
	s.state.AppliedEntry(e, b)
	s.state.Applied(b, fmt.Sprint(s.rv-1))
	s.waiting = append(s.waiting, e)
}

// commit writes what waits. Of a commit of unknown outcome nothing is acknowledged.
func (s *scope) commit(unknown bool) {
	s.Helper()
	c := s.state.Captured()
	newest := map[string]*overlay.Entry{}
	for _, e := range s.waiting {
		newest[e.Key] = e
	}
	var entries []*overlay.Entry
	for _, e := range s.waiting {
		if newest[e.Key] == e {
			entries = append(entries, e)
		}
	}
	packed, err := s.packer.Pack(seal.InScope, entries)
	if err != nil {
		s.Fatal(err)
	}
	var log record.LogState
	s.update(func(tx *bbolt.Tx) error {
		corrupt := func(_ string, err error) error { return err }
		w, err := content.NewWriter(s.id, tx.Bucket(bucket), content.Options{Packer: s.packer, Codec: 1, Logger: logr.Discard(), Corrupt: corrupt})
		if err != nil {
			return err
		}
		a := changelog.NewAppender(w, c, changelog.Options{
			Bounds: func(int64) (int64, time.Duration) { return s.bound, 0 },
			Codec:  1, Logger: logr.Discard(), Corrupt: corrupt, RV: fmt.Sprint(s.rv), Settled: s.settled,
		})
		for i, e := range entries {
			before := w.Before(e.Key)
			if err := errors.Join(a.Note(e, e.Stored(packed[i]), before), w.Put(e, packed[i], before)); err != nil {
				return err
			}
		}
		w.Manifest.RV = fmt.Sprint(s.rv)
		if err := a.End(); err != nil {
			return err
		}
		log, c.Held = w.Manifest.Log, a.Held
		return w.End()
	})
	if s.state.Attempted(c.Attempt()); unknown {
		return
	}
	s.state.Committed(c, log, fmt.Sprint(s.rv), 1<<30)
	s.waiting = nil
}

// read returns the entries and the marks of the log. It checks the sums in the manifest.
func (s *scope) read() (entries []record.LogEntry, marks []record.Mark) {
	s.Helper()
	s.update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		m, err := layout.ReadManifest(s.id, b)
		if err != nil || b.Bucket(layout.Log) == nil {
			return err
		}
		var t record.Tally
		var size int64
		err = b.Bucket(layout.Log).ForEach(func(k, v []byte) error {
			t.Add(record.Sum(v))
			size += int64(len(v))
			block, err := record.DecodeBlock(binary.BigEndian.Uint64(k), v)
			if err != nil {
				return err
			}
			for _, e := range block.Entries {
				e.Header, e.Record = append([]byte(nil), e.Header...), append([]byte(nil), e.Record...)
				entries = append(entries, e)
			}
			if block.Mark != nil {
				marks = append(marks, *block.Mark)
			}
			return nil
		})
		if t != m.Log.Blocks || size != m.Log.Bytes || int(m.Log.Entries) != len(entries) {
			s.Errorf("%d blocks of %d bytes with %d entries; the manifest says %d, %d, %d", t.Count, size, len(entries), m.Log.Blocks.Count, m.Log.Bytes, m.Log.Entries)
		}
		if acknowledged := s.sum.Bytes.Load(); s.waiting == nil && acknowledged != size {
			s.Errorf("%d bytes are acknowledged, want %d", acknowledged, size)
		}
		return err
	})
	return entries, marks
}

// TestAppend checks that the log has the changes in the order in which they were applied,
// with the states before, and a mark behind each commit.
func TestAppend(t *testing.T) {
	s := open(t, 1<<20)
	s.apply("a", 100, 0)
	s.apply("b", 100, 0)
	s.commit(false)
	s.apply("b", 0, 0)
	s.apply("a", 200, 0)
	s.commit(false)
	entries, marks := s.read()
	got := ""
	for _, e := range entries {
		before := "nothing"
		if len(e.Header) > 0 {
			h, err := record.DecodeHeader(e.Key, e.Header)
			if err != nil {
				t.Fatal(err)
			}
			before = h.RV
		}
		got += fmt.Sprintf("%d %s %t %s; ", e.Number, e.Key, e.Kind&record.KindDeleted != 0, before)
	}
	if want := "1 a false nothing; 2 b false nothing; 4 b true 2; 5 a false 1; "; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if len(marks) != 2 || marks[0].To != "2" || marks[1].From != "2" || marks[1].To != "4" || marks[1].Frozen {
		t.Errorf("marks %+v", marks)
	}
}

// TestUnknownOutcome checks that a commit that is written again, because its outcome was
// not known, is in the log once.
func TestUnknownOutcome(t *testing.T) {
	s := open(t, 1<<20)
	s.apply("a", 100, 0)
	s.commit(false)
	s.apply("a", 0, 1)
	s.commit(true)
	s.apply("b", 100, 0)
	s.commit(false)
	entries, _ := s.read()
	keys := ""
	for _, e := range entries {
		keys += e.Key
	}
	if keys != "aab" {
		t.Errorf("keys %q, want aab", keys)
	}
}

// TestTrim applies random changes. The log keeps its bound, all departures that handlers
// have not received, up to twice the bound, and no hole that it does not know of.
func TestTrim(t *testing.T) {
	const bound = 256 << 10
	rng := rand.New(rand.NewPCG(1, 2))
	s := open(t, bound)
	departs := uint64(0)
	for round := range 400 {
		for range 1 + rng.IntN(20) {
			key := fmt.Sprint(rng.IntN(50))
			if isWaiting := slices.ContainsFunc(s.waiting, func(e *overlay.Entry) bool { return e.Key == key }); !isWaiting && rng.IntN(5) == 0 {
				departs++
				s.apply(key, 0, departs)
			} else {
				s.apply(key, 100+rng.IntN(3000), 0)
			}
		}
		if s.commit(rng.IntN(10) == 0); s.waiting != nil {
			s.commit(false)
		}
		if round%50 == 0 {
			s.settled = departs
		}
		entries, marks := s.read()
		if size := s.sum.Bytes.Load(); size > 2*bound+64<<10 {
			t.Fatalf("the log has %d bytes", size)
		}
		kept := map[uint64]bool{}
		next := uint64(0)
		for _, e := range entries {
			if kept[e.Departs] = true; e.Number <= next && next > 0 {
				t.Fatalf("number %d behind %d", e.Number, next)
			}
			next = e.Number
		}
		for number := s.settled + 1; s.sum.Bytes.Load() < bound && number <= departs; number++ {
			if last := departs - s.settled; !kept[number] && last < 200 {
				t.Fatalf("round %d: departure %d of %d is not kept, settled are %d", round, number, departs, s.settled)
			}
		}
		if len(marks) == 0 || marks[len(marks)-1].To != fmt.Sprint(s.rv) {
			t.Fatalf("the last mark is %+v", marks)
		}
	}
	if s.state.Log.Dropped == 0 {
		t.Error("nothing was dropped: this tests nothing")
	}
}

// TestTrimDamagedKey checks that elements of the log whose keys have another length are
// trimmed, that what is behind them stays, and that the log keeps its bound.
func TestTrimDamagedKey(t *testing.T) {
	const bound = 64 << 10
	for name, positions := range map[string][]int{"none": {}, "first": {0}, "inner": {20}, "neighbours": {20, 21}, "last": {39}} {
		t.Run(name, func(t *testing.T) {
			s := open(t, bound)
			departs := uint64(0)
			change := func(times int) {
				t.Helper()
				for i := range times {
					if key := fmt.Sprint(i % 4); i%8 < 4 {
						s.apply(key, 3000, 0)
					} else {
						departs++
						s.apply(key, 0, departs)
					}
					s.settled = departs
					s.commit(false)
				}
			}
			s.bound = 1 << 20
			change(40)
			s.damageKeys(positions...)
			s.bound = bound / 4
			for range 2 { // nothing is appended, and deletions stay the first time
				s.commit(false)
			}
			if l := s.state.Log; l.Bytes > bound/2 || l.Full == l.Last {
				t.Errorf("the log has %d bytes, and nothing before %d of %d", l.Bytes, l.Full, l.Last)
			}
			s.bound = bound
			change(80)
			if size := s.sum.Bytes.Load(); size > bound+16<<10 {
				t.Errorf("the log has %d bytes", size)
			}
			s.read()
		})
	}
}

// damageKeys lengthens the keys of the blocks of the log at some positions, as a changed
// bit does: a key is followed by its value.
func (s *scope) damageKeys(positions ...int) {
	s.Helper()
	s.update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket).Bucket(layout.Log)
		type element struct{ key, value []byte }
		var all []element
		err := b.ForEach(func(k, v []byte) error {
			all = append(all, element{slices.Clone(k), slices.Clone(v)})
			return nil
		})
		for _, at := range positions {
			e := all[at]
			err = errors.Join(err, b.Delete(e.key), b.Put(append(e.key, e.value[0]), e.value[1:]))
		}
		return err
	})
}

// TestLost checks that a lost log counts for nothing, however often it is lost.
func TestLost(t *testing.T) {
	s := open(t, 1<<20)
	s.apply("a", 100, 0)
	s.commit(false)
	if s.sum.Bytes.Load() == 0 || s.state.Log.Mark.Number == 0 {
		t.Fatal("there is no log")
	}
	for range 2 {
		s.state.Lost(nil)
		if s.sum.Bytes.Load() != 0 || s.state.Log.Last != 0 || s.state.MayHaveWritten(record.LogState{Mark: record.Mark{Number: 1}}) {
			t.Errorf("%d bytes, %+v", s.sum.Bytes.Load(), s.state.Log)
		}
	}
}
