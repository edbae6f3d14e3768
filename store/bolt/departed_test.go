package bolt_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestDepartedBound checks that the bytes kept of departed objects are bounded, that
// objects beyond the bound are counted, and that dropping departed objects frees room.
func TestDepartedBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	opts := scriptOptions()
	opts.History.Bytes = 2 << 10
	db, s := mustOpenScriptWith(t, path, bolt.Options{}, opts)
	must(t, s.Apply(small.batch(1)))
	depart := func(from, n int) {
		t.Helper()
		for i := from; i < from+n; i++ {
			must(t, s.Apply(store.Batch{RV: "2", Changes: []store.Change{{Key: small.key(i), Departs: true}}}))
		}
		must(t, s.Flush(t.Context()))
	}
	half := small.keys / 2
	depart(0, half)
	departer := s.(store.Departer)
	kept, dropped := departer.Departures()
	if kept == 0 || dropped == 0 || kept+dropped != half {
		t.Errorf("%d are kept and %d are not, want some of both, %d in all", kept, dropped, half)
	}
	if found, err := departer.Departed(0, half); err != nil || len(found) != kept {
		t.Errorf("found %d of %d, %v", len(found), kept, err)
	}
	departer.Settle()
	must(t, db.Close())

	db, s = mustOpenScriptWith(t, path, bolt.Options{}, opts)
	departer = s.(store.Departer)
	depart(half, 1)
	if kept, dropped := departer.Departures(); kept != 1 || dropped != 0 {
		t.Errorf("after a restart %d are kept and %d are not, want the new one", kept, dropped)
	}
	must(t, db.Close())
}

// TestDepartedAfterWipe checks that departed objects settled before a wipe do not settle
// objects that depart in a process after it.
func TestDepartedAfterWipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := mustOpenScript(t, path, bolt.Options{})
	must(t, s.Apply(small.batch(1)))
	depart := func(i int) {
		t.Helper()
		must(t, s.Apply(store.Batch{RV: "2", Changes: []store.Change{{Key: small.key(i), Departs: true}}}))
	}
	depart(0)
	depart(1)
	s.(store.Departer).Settle()
	must(t, s.Flush(t.Context()))
	_, err := db.Wipe(nil)
	must(t, err)
	list, err := s.Relist()
	must(t, err)
	for i := range small.keys {
		must(t, list.Add(small.object(i, 1)))
	}
	for part, err := range list.Parts("3") {
		must(t, err)
		must(t, s.Apply(part))
	}
	must(t, list.Close())
	must(t, s.Flush(t.Context()))
	must(t, db.Close())

	db, s = mustOpenScript(t, path, bolt.Options{})
	depart(2)
	if found, err := s.(store.Departer).Departed(0, 10); err != nil || len(found) != 1 {
		t.Errorf("found %d, %v, want the one that has departed", len(found), err)
	}
	must(t, db.Close())
}

// TestDepartedDamaged checks that a damaged part of the log is passed over, and that the
// file is used on: nothing can restore a deletion.
func TestDepartedDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := mustOpenScript(t, path, bolt.Options{Compression: bolt.Uncompressed})
	must(t, s.Apply(small.batch(1)))
	must(t, s.Flush(t.Context()))
	for _, i := range []int{1, 2, 3} {
		must(t, s.Apply(store.Batch{RV: "2", Changes: []store.Change{{Key: small.key(i), Departs: true}}}))
		must(t, s.Flush(t.Context()))
	}
	want := func(keys ...int) {
		t.Helper()
		found, err := s.(store.Departer).Departed(0, 10)
		must(t, err)
		var got []string
		for _, d := range found {
			got = append(got, d.Before.Key)
		}
		var wanted []string
		for _, i := range keys {
			wanted = append(wanted, small.key(i))
		}
		if !slices.Equal(got, wanted) {
			t.Errorf("found %q, want %q", got, wanted)
		}
	}
	want(1, 2, 3)
	bolt.DamageLog(db, scriptScope(), 2) // the first one is that of the objects
	want(1, 3)
	must(t, db.Close())

	db, s = mustOpenScript(t, path, bolt.Options{})
	if aside := db.SetAside(); aside != "" {
		t.Errorf("the file was set aside as %s", aside)
	}
	want(1, 3)
	must(t, db.Close())
}

// TestDepartedInParts checks that departed objects of one commit, whose numbers are not
// in the order of the log, are read in parts, each once and in the order of their
// numbers, while other commits thin the blocks that they are in.
func TestDepartedInParts(t *testing.T) {
	t.Parallel()
	const n, limit = 600, 64
	db, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{CommitInterval: time.Hour, Compression: bolt.Uncompressed})
	must(t, err)
	c, err := codec.For(&corev1.ConfigMap{})
	must(t, err)
	s, err := db.Open(scriptScope(), store.Options{Codec: c, History: store.History{Bytes: 256 << 10}})
	must(t, err)
	var all []*corev1.ConfigMap
	for i := range n {
		all = append(all, labelled(fmt.Sprintf("o%04d", i), "web", 200))
	}
	apply(t, s, "1", all...)
	must(t, s.Flush(t.Context()))
	for i, obj := range all {
		apply(t, s, "2", labelled(fmt.Sprintf("p%04d", i), "web", 200)) // thinned out
		must(t, s.Apply(store.Batch{RV: "2", Changes: []store.Change{{Key: "a/" + obj.Name, Departs: true}}}))
	}
	apply(t, s, "3", all[:n/2]...) // moves these behind the others
	must(t, s.Flush(t.Context()))

	var keys []string
	for after, rv := uint64(0), 4; ; rv++ {
		part, err := s.(store.Departer).Departed(after, limit)
		must(t, err)
		for _, d := range part {
			if d.Number <= after {
				t.Fatalf("number %d after %d", d.Number, after)
			}
			after, keys = d.Number, append(keys, d.Before.Key)
		}
		if len(part) < limit {
			break
		}
		if first, err := s.(store.Departer).Departed(0, 1); err != nil || len(first) != 1 || first[0].Number != 1 {
			t.Fatalf("another handler begins with %v, %v", first, err)
		}
		if rv%2 == 0 { // which thins the log
			apply(t, s, fmt.Sprint(rv), labelled("big", "web", 20_000+rv))
			for i := range 40 {
				apply(t, s, fmt.Sprint(rv), labelled(fmt.Sprintf("filler%02d", i), fmt.Sprint(rv), 1000))
			}
			must(t, s.Flush(t.Context()))
		}
	}
	var want []string
	for _, obj := range all {
		want = append(want, "a/"+obj.Name)
	}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Errorf("departed (-want +got):\n%s", diff)
	}
	must(t, db.Close())
}

// TestDepartedUnacknowledged checks that a departed object is read from the log if the
// commit that wrote it is in the file but has returned an error: the record is in no
// other place then.
func TestDepartedUnacknowledged(t *testing.T) {
	t.Parallel()
	db, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{CommitInterval: time.Hour})
	must(t, err)
	s := openLabelled(t, db)
	apply(t, s, "1", labelled("gone", "web", 10), labelled("stays", "web", 10))
	must(t, s.Flush(t.Context()))
	unacknowledged(db)
	must(t, s.Apply(store.Batch{RV: "2", Changes: []store.Change{{Key: "a/gone", Departs: true}}}))
	if err := bolt.Commit(db); err == nil {
		t.Fatal("the commit was acknowledged")
	}
	found, err := s.(store.Departer).Departed(0, 10)
	if err != nil || len(found) != 1 || found[0].Before.Key != "a/gone" || found[0].Before.Raw == nil {
		t.Errorf("departed: %+v, %v", found, err)
	}
	must(t, db.Close())
}

// TestDepartedDamagedKey checks that a key of the log that is no number keeps no departed
// object back, also from a reader of parts.
func TestDepartedDamagedKey(t *testing.T) {
	t.Parallel()
	db, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{CommitInterval: time.Hour})
	must(t, err)
	s := openLabelled(t, db)
	apply(t, s, "1", labelled("one", "web", 10), labelled("two", "web", 10))
	must(t, s.Flush(t.Context()))
	for i, name := range []string{"one", "two"} {
		must(t, s.Apply(store.Batch{RV: fmt.Sprint(i + 2), Changes: []store.Change{{Key: "a/" + name, Departs: true}}}))
		must(t, s.Flush(t.Context()))
	}
	bolt.PutIntoLog(db, scriptScope())
	for after, key := range []string{"a/one", "a/two"} {
		if found, err := s.(store.Departer).Departed(uint64(after), 1); err != nil || len(found) != 1 || found[0].Before.Key != key {
			t.Errorf("departed after %d: %v, %v; want %s", after, found, err, key)
		}
	}
	must(t, db.Close())
}

// TestDepartedNumbers checks that numbers are not used again after what they named was
// lost or wiped, even if the list after that breaks: a handler would take the next
// departed object for one that it has received.
func TestDepartedNumbers(t *testing.T) {
	for name, drop := range map[string]func(*testing.T, *bolt.DB, string){
		"wiped": func(t *testing.T, db *bolt.DB, _ string) {
			_, err := db.Wipe(nil)
			must(t, err)
		},
		"lost": func(t *testing.T, _ *bolt.DB, path string) { must(t, os.Remove(path)) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			db, s := mustOpenScript(t, path, bolt.Options{})
			must(t, s.Apply(small.batch(1)))
			depart := func(i int) uint64 {
				t.Helper()
				must(t, s.Apply(store.Batch{RV: "2", Changes: []store.Change{{Key: small.key(i), RV: "2", Departs: true}}}))
				must(t, s.Flush(t.Context()))
				found, err := s.(store.Departer).Departed(0, 100)
				must(t, err)
				if len(found) == 0 || found[len(found)-1].Before.Key != small.key(i) {
					t.Fatalf("%d are found, want %s as the last", len(found), small.key(i))
				}
				return found[len(found)-1].Number
			}
			depart(0)
			last := depart(1)
			drop(t, db, path)
			if name == "lost" { // it is found by the next write
				must(t, s.Apply(store.Batch{RV: "3"}))
				if err := s.Flush(t.Context()); err != nil {
					t.Logf("flush: %v", err)
				}
			}
			list, err := s.Relist()
			must(t, err)
			bolt.SetRelistLimit(list, 1)
			must(t, list.Add(small.object(2, 1)))
			must(t, list.Add(small.object(3, 1)))
			inFile(t, db, 2)
			must(t, list.Close())
			loadScript(t, s, "5", 2, 3)
			if number := depart(2); number <= last {
				t.Errorf("number %d is used again, %d was the last", number, last)
			}
		})
	}
}

// TestDepartedOfBrokenList checks that a first list that breaks changes nothing of what
// later handlers are told, nor of what was settled or dropped.
func TestDepartedOfBrokenList(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := mustOpenScript(t, path, bolt.Options{})
	must(t, s.Apply(small.batch(1)))
	must(t, s.Apply(store.Batch{RV: "2", Changes: []store.Change{{Key: small.key(0), RV: "2", Departs: true}}}))
	must(t, db.Close())

	opts := scriptOptions()
	opts.TransformVersion = "2"
	db, s = mustOpenScriptWith(t, path, bolt.Options{}, opts)
	departer := s.(store.Departer)
	departer.Settle()
	must(t, s.Flush(t.Context())) // the file knows that it is settled
	wantDeparted(t, s, 0)
	list, err := s.Relist()
	must(t, err)
	bolt.SetRelistLimit(list, 1)
	must(t, list.Add(small.object(2, 1)))
	must(t, list.Add(small.object(3, 1)))
	inFile(t, db, 2)
	must(t, list.Close())
	wantDeparted(t, s, 0) // for a handler that comes later in this process
	if kept, dropped := departer.Departures(); kept != 1 || dropped != 0 {
		t.Errorf("%d are kept and %d dropped, want 1 and 0", kept, dropped)
	}
}

// TestPreparedBatchTwice checks that a prepared batch can be applied again, before and
// after its first application is written, and while a list is loaded.
func TestPreparedBatchTwice(t *testing.T) {
	prepare := func(s store.Store) store.Batch {
		t.Helper()
		b := store.Batch{RV: "2", Changes: []store.Change{{Object: small.object(0, 2), Departs: true}}}
		must(t, s.Prepare(&b))
		return b
	}
	wantDeparted := func(s store.Store, most int) {
		t.Helper()
		found, err := s.(store.Departer).Departed(0, 10)
		if err != nil || len(found) == 0 || len(found) > most {
			t.Errorf("%d objects have departed, want 1 to %d (%v)", len(found), most, err)
		}
	}
	db, s := mustOpenScript(t, filepath.Join(t.TempDir(), "informers.db"), bolt.Options{CommitInterval: time.Hour})
	defer func() { must(t, db.Close()) }()
	must(t, s.Apply(small.batch(1)))
	must(t, s.Flush(t.Context()))
	b := prepare(s)
	must(t, s.Apply(b))
	must(t, s.Apply(b))
	wantDeparted(s, 2)
	must(t, s.Flush(t.Context()))
	must(t, s.Apply(b))
	must(t, s.Flush(t.Context()))
	wantDeparted(s, 3)

	db, s = mustOpenScript(t, filepath.Join(t.TempDir(), "informers.db"), bolt.Options{CommitInterval: time.Hour})
	defer func() { must(t, db.Close()) }()
	r, err := s.Relist()
	must(t, err)
	b = prepare(s)
	must(t, s.Apply(b))
	must(t, s.Apply(b))
	must(t, r.Close())
}
