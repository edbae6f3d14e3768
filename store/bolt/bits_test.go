package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// part is the location of a stored item in the file.
type part struct {
	what    string // object, header, manifest, ...
	key     string
	off, to int
}

// parts returns the keys and values of every bucket in a file. Pages that are no longer
// in use may contain the same bytes.
func parts(t *testing.T, path string) (all []part) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	must(t, err)
	defer func() { must(t, db.Close()) }()
	base, file := db.Info().Data, read(t, path)
	add := func(what string, key, b []byte) {
		if len(b) == 0 {
			return
		}
		off := int(uintptr(unsafe.Pointer(&b[0])) - base)
		// This is a copy: the bucket is stored inside a page of another one.
		if off < 0 || off >= len(file) {
			for _, page := range usedPages(file, pageLeaf) {
				if at := bytes.Index(file[page*pageSize:(page+1)*pageSize], b); at >= 0 {
					off = page*pageSize + at
				}
			}
		}
		all = append(all, part{what, string(key), off, off + len(b)})
	}
	must(t, db.View(func(tx *bbolt.Tx) error {
		add("tally of scopes", nil, tx.Bucket([]byte("meta")).Get([]byte("scopes")))
		add("format", nil, tx.Bucket([]byte("meta")).Get([]byte("format")))
		b := tx.Bucket([]byte("scope")).Bucket([]byte(scriptScope().ID()))
		add("manifest", nil, b.Get([]byte("manifest")))
		buckets := map[string]*bbolt.Bucket{"object": b.Bucket([]byte("objects")), "header": b.Bucket([]byte("headers"))}
		buckets["dictionary"] = b.Bucket([]byte("dictionaries"))
		for _, name := range []string{"namespace", "label:app"} {
			buckets["entry of "+name] = b.Bucket([]byte("index")).Bucket([]byte(name))
		}
		for what, b := range buckets {
			err := b.ForEach(func(k, v []byte) error {
				add("key of "+what, k, k)
				add(what, k, v)
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}))
	return all
}

// TestEveryBitAtRead changes every bit of records and headers in an open file. Their
// readers must detect each change (promise 5).
func TestEveryBitAtRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "informers.db")
	scriptFile(t, path, damageScript, 3)
	all := parts(t, path)
	_, s := mustOpenScript(t, path, bolt.Options{})
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	good := read(t, path)
	reads := map[string]func(key string) error{
		"object": func(key string) error { _, _, err := store.Indexer(s).GetByKey(key); return err },
		"header": func(string) error { _, err := s.Select(store.Query{Limit: 1}); return err },
	}
	for what, fn := range reads {
		bits := 0
		for _, p := range all {
			if p.what != what {
				continue
			}
			for off := p.off; off < p.to; off++ {
				for bit := range 8 {
					_, err := f.WriteAt([]byte{good[off] ^ 1<<bit}, int64(off))
					must(t, err)
					bits++
					if err := fn(p.key); !errors.Is(err, store.ErrCorrupt) {
						t.Fatalf("bit %d of byte %d of %s %s: error is %v", bit, off-p.off, what, p.key, err)
					}
				}
				_, err := f.WriteAt(good[off:off+1], int64(off))
				must(t, err)
			}
			must(t, fn(p.key))
			if what == "header" || bits > 10_000 {
				break // a reader of headers begins with the first one
			}
		}
		t.Logf("%d bits of %ss", bits, what)
		if bits < 500 {
			t.Errorf("%d bits of %ss only", bits, what)
		}
	}
	wantState(t, s, damageScript, 3)
}

// TestAnyBitAtOpen changes random bits of keys and values in a closed file. The next Open
// must detect them (promise 5).
func TestAnyBitAtOpen(t *testing.T) {
	t.Parallel()
	rng, _ := seeded(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "informers.db")
	scriptFile(t, path, damageScript, 3)
	good := trimmed(read(t, path))
	byWhat := map[string][]part{}
	for _, p := range parts(t, path) {
		byWhat[p.what] = append(byWhat[p.what], p)
	}
	if len(byWhat) != 3+2*3+2 {
		t.Fatalf("parts are %v", len(byWhat))
	}
	for what, some := range byWhat {
		for range 60 {
			p := some[rng.IntN(len(some))]
			off := p.off + rng.IntN(p.to-p.off)
			b := bytes.Clone(good)
			b[off] ^= 1 << rng.IntN(8)
			if err := noticed(path, b, what); err != nil {
				t.Fatalf("%s: byte %d of %s, a flipped bit: %v", what, off-p.off, p.key, err)
			}
		}
	}
}

// TestPageHeadersAtOpen changes bits of bbolt's page headers. The next Open must detect a
// change unless it does no harm.
func TestPageHeadersAtOpen(t *testing.T) {
	t.Parallel()
	rng, _ := seeded(t)
	path := filepath.Join(t.TempDir(), "informers.db")
	scriptFile(t, path, damageScript, 3)
	good, want := trimmed(read(t, path)), damageScript.want(3)
	found := 0
	pages := append(usedPages(good, pageLeaf|pageBranch), freelistPage(good))
	for range 300 {
		b := bytes.Clone(good)
		off := pages[rng.IntN(len(pages))]*pageSize + rng.IntN(16+16*4)
		b[off] ^= 1 << rng.IntN(8)
		must(t, os.WriteFile(path, b, 0o600))
		db, s := mustOpenScript(t, path, bolt.Options{})
		if db.SetAside() != "" {
			found++
		} else if got, err := describe(s, damageScript); err != nil || got != want {
			t.Errorf("a flipped bit in byte %d of page %d: %v, state\n%s", off%pageSize, off/pageSize, err, got)
		}
		must(t, db.Close())
	}
	t.Logf("%d of 300 bits of page headers were noticed", found)
}

// noticed returns an error unless both writers and readers detect that a file is damaged.
func noticed(path string, b []byte, what string) error {
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return err
	}
	ro, err := bolt.OpenReadOnly(path, bolt.Options{LockTimeout: time.Millisecond})
	if err == nil {
		var s store.Store
		if s, err = ro.Open(scriptScope(), scriptOptions()); err == nil {
			_, err = describe(s, damageScript)
		}
		_ = ro.Close()
	}
	// If a bit of the format changed, errors about another or a missing format are
	// correct.
	if !errors.Is(err, store.ErrCorrupt) && !strings.Contains(what, "format") {
		return fmt.Errorf("read-only: error is %w", err)
	}
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		if strings.Contains(what, "format") {
			return nil
		}
		return err
	}
	defer func() { _ = db.Close() }()
	if db.SetAside() == "" {
		return errors.New("not set aside")
	}
	return nil
}

// TestPagesDamagedWhileOpen removes the last element of a page in an open file. Every
// read must return the correct result or an error, except that entries of indexes may be
// missing until the next Open (docs/reliability.md).
func TestPagesDamagedWhileOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	scriptFile(t, path, damageScript, 3)
	good, want := trimmed(read(t, path)), damageScript.want(3)
	for _, page := range usedPages(good, pageLeaf) {
		must(t, os.WriteFile(path, good, 0o600))
		db, s := mustOpenScript(t, path, bolt.Options{})
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		must(t, err)
		count := good[page*pageSize+10]
		_, err = f.WriteAt([]byte{max(count, 1) - 1}, int64(page*pageSize+10))
		must(t, errors.Join(err, f.Close()))
		got, err := describe(s, damageScript)
		inIndex := errors.Is(err, errInconsistent) && (strings.Contains(err.Error(), "indexes are") || strings.Contains(err.Error(), "Select of"))
		if !inIndex && !errors.Is(err, store.ErrCorrupt) && (err != nil || got != want) {
			t.Errorf("page %d with %d elements instead of %d: %.200v", page, count-1, count, err)
		}
		_ = db.Close()
	}
}

// TestPagesDamagedOfReader checks that a reader of a file whose pages have lost their
// last elements gets all keys that it asks for, or an error.
func TestPagesDamagedOfReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	scriptFile(t, path, damageScript, 3)
	good := trimmed(read(t, path))
	damaged := 0
	ask := func(q store.Query) ([]string, error) {
		db, err := bolt.OpenReadOnly(path, bolt.Options{})
		if err != nil {
			return nil, err
		}
		defer func() { must(t, db.Close()) }()
		s, err := db.Open(scriptScope(), scriptOptions())
		if err != nil {
			return nil, err
		}
		if q.At.Lineage == "now" {
			state, err := s.History()
			if err != nil {
				return nil, err
			}
			q.At = state.Last
		}
		return s.Keys(q)
	}
	want, err := ask(store.Query{})
	must(t, err)
	namespace, _, _ := strings.Cut(want[0], "/")
	queries := map[string]store.Query{
		"namespace": {Namespace: namespace}, "limit": {Limit: 1024}, "keys": {Keys: want}, "at": {At: store.Place{Lineage: "now"}},
	}
	all := map[string][]string{}
	for name, q := range queries {
		if all[name], err = ask(q); err != nil || len(all[name]) == 0 {
			t.Fatalf("%s: %d keys, %v", name, len(all[name]), err)
		}
	}
	for _, page := range usedPages(good, pageLeaf) {
		one := bytes.Clone(good)
		one[page*pageSize+10] = max(one[page*pageSize+10], 1) - 1
		must(t, os.WriteFile(path, one, 0o600))
		for name, q := range queries {
			got, err := ask(q)
			if errors.Is(err, store.ErrCorrupt) {
				damaged++
			} else if err == nil && !slices.Equal(got, all[name]) {
				t.Errorf("page %d: %s: %d keys instead of %d", page, name, len(got), len(all[name]))
			}
		}
	}
	if damaged == 0 {
		t.Error("no damage was noticed")
	}
}

// TestDamagedKeyOfReader checks that a reader of a file gets no key that is damaged.
func TestDamagedKeyOfReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	scriptFile(t, path, damageScript, 3)
	b, key := read(t, path), []byte(damageScript.key(1))
	damaged := bytes.Clone(key)
	damaged[len(damaged)-1] ^= 1 << 4
	found := 0
	for at := 0; ; found++ {
		i := bytes.Index(b[at:], key)
		if i < 0 {
			break
		}
		one := bytes.Clone(b)
		copy(one[at+i:], damaged)
		at += i + len(key)
		must(t, os.WriteFile(path, one, 0o600))
		db, err := bolt.OpenReadOnly(path, bolt.Options{})
		if err != nil {
			continue
		}
		s, err := db.Open(scriptScope(), scriptOptions())
		if err == nil {
			keys, err := s.Keys(store.Query{})
			if !errors.Is(err, store.ErrCorrupt) && slices.Contains(keys, string(damaged)) {
				t.Errorf("%q is among the keys, error %v", damaged, err)
			}
		}
		must(t, db.Close())
	}
	if found < 2 {
		t.Errorf("%d copies of the key are in the file", found)
	}
}
