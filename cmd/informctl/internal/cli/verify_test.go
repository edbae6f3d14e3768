package cli_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bbolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestVerifyOfOtherEntries checks that an index with as many entries as it should have is
// not said to be damaged by its number.
func TestVerifyOfOtherEntries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	writeFile(t, path)
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		scopes := tx.Bucket([]byte("scope"))
		return scopes.ForEachBucket(func(id []byte) error {
			entries := scopes.Bucket(id)
			for _, name := range []string{"index", "label:app"} {
				if entries = entries.Bucket([]byte(name)); entries == nil {
					return nil
				}
			}
			if entries.Stats().KeyN != 4 {
				return nil // not the pods'
			}
			key, _ := entries.Cursor().Last()
			other := append(append([]byte{}, key[:len(key)-1]...), '9')
			if err := entries.Delete(key); err != nil {
				return err
			}
			return entries.Put(other, nil)
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"verify"}, {"query", "pods", "--index", "label:app=web"}} {
		got := say(t.Context(), append(args, "--db", path)...)
		if all := got.Out + got.Err; got.Code != 3 || !strings.Contains(all, "4 entries, as many as there should be, but not the same") {
			t.Errorf("%q: exit code %d, %s", args, got.Code, all)
		}
	}
}

// TestVerifyBesideObjects checks that a file whose log or ledger is damaged is not whole
// for verify, snapshot and compact, and that what only concerns its objects goes on.
func TestVerifyBesideObjects(t *testing.T) {
	for name, test := range map[string]struct {
		damage func(*bbolt.Tx) error
		line   string
		also   [][]string // commands that fail like verify
	}{
		"log": {
			func(tx *bbolt.Tx) error {
				scopes := tx.Bucket([]byte("scope"))
				id, _ := scopes.Cursor().First()
				return flipLast(scopes.Bucket(id).Bucket([]byte("log")))
			},
			"pods: damaged: log at ",
			[][]string{{"history", "pods"}},
		},
		"ledger": {
			func(tx *bbolt.Tx) error {
				return flipLast(tx.Bucket([]byte("meta")).Bucket([]byte("ledger")).Bucket([]byte("consumer/a")))
			},
			"ledgers: damaged: ", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			for generation := range 3 {
				db, err := bolt.Open(path, bolt.Options{})
				if err != nil {
					t.Fatal(err)
				}
				fill(t, db, corev1.SchemeGroupVersion.WithKind("Pod"), "pods", store.Typed, testobjects.Pod(0, int64(generation)))
				err = errors.Join(db.SetLedger(t.Context(), "consumer/a", map[string][]byte{"key/b": []byte("c")}), db.Close())
				if err != nil {
					t.Fatal(err)
				}
			}
			if got := say(t.Context(), "verify", "--db", path); got.Code != 0 || got.Out != "pods: whole: 1 objects, 3 indexes\n" {
				t.Fatalf("before: %+v", got)
			}
			raw, err := bbolt.Open(path, 0o600, nil)
			if err == nil {
				err = errors.Join(raw.Update(test.damage), raw.Close())
			}
			before, readErr := os.ReadFile(path)
			if err := errors.Join(err, readErr); err != nil {
				t.Fatal(err)
			}
			got := say(t.Context(), "verify", "--db", path)
			if got.Code != 3 || !strings.Contains(got.Out, test.line) || strings.Contains(got.Err, "begins a new one") {
				t.Errorf("verify: %+v", got)
			}
			out := path + ".copy"
			for _, args := range append(test.also, []string{"snapshot", out}, []string{"compact"}) {
				got := say(t.Context(), append(args, "--db", path)...)
				if got.Code != 3 || !strings.Contains(got.Err, "the objects are whole") {
					t.Errorf("%s: %+v", args, got)
				}
			}
			after, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(before, after) {
				t.Errorf("the file has changed (%v)", err)
			}
			if _, err := os.Stat(out); err == nil {
				t.Error("the snapshot is there")
			}
			for _, args := range [][]string{{"query", "pods"}, {"dump"}, {"wipe", "--yes"}} {
				if got := say(t.Context(), append(args, "--db", path)...); got.Code != 0 {
					t.Errorf("%s: %+v", args, got)
				}
			}
		})
	}
}

// flipLast changes a bit in the last value of a bucket.
func flipLast(b *bbolt.Bucket) error {
	k, v := b.Cursor().Last()
	k, v = bytes.Clone(k), bytes.Clone(v)
	v[len(v)/2] ^= 1
	return b.Put(k, v)
}

// TestVerifyFreelist checks that a freelist which a writer would use to overwrite objects
// is damage, although every object can be read.
func TestVerifyFreelist(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	writeFile(t, path)
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	size := db.Info().PageSize
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := 2 * size; at < len(content); at += size {
		if content[at+8] == 0x10 && content[at+10] > 0 { // a freelist with a page
			content[at+16] = byte(at / size) // is free itself
		}
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := say(t.Context(), "dump", "--db", path); got.Code != 0 {
		t.Errorf("dump: %+v", got)
	}
	for _, command := range []string{"verify", "compact", "wipe"} {
		args := []string{command, "--db", path}
		if command == "wipe" {
			args = append(args, "--yes")
		}
		if got := say(t.Context(), args...); got.Code != 3 || !strings.Contains(got.Err, "sets such a file aside") {
			t.Errorf("%s: %+v", command, got)
		}
	}
}

// TestVerifyOfOtherType checks that a file is whole that has objects of a Go type which
// this program does not have.
func TestVerifyOfOtherType(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, db, corev1.SchemeGroupVersion.WithKind("Pod"), "pods", store.Typed, pod("default", "web", "web"))
	c, err := codec.For(&corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	kind := schema.GroupVersionKind{Group: "other.example.com", Version: "v1", Kind: "Other"}
	fillScopeBy(t, db, c, nil, store.Scope{Resource: "others.other.example.com", Kind: kind, Form: store.Typed}, "1000",
		&corev1.ConfigMap{ObjectMeta: objectMeta("default", "one", "web")}, &corev1.ConfigMap{ObjectMeta: objectMeta("default", "two", "web")})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	const reason = "Kind=Other: no type in client-go's scheme; a table, -o name and --count need none"
	_, stop := hold(t, path)
	for range 2 { // live, and the file
		for _, tt := range []struct {
			args []string
			want said
		}{
			{[]string{"verify"}, said{Out: "others.other.example.com: adds up: 2 objects, of a Go type that this program does not have\n" +
				"pods: whole: 1 objects, 3 indexes\n"}},
			{[]string{"snapshot", filepath.Join(t.TempDir(), "copy.db")}, said{}},
			{[]string{"dump", "-o", "name"}, said{Out: "other.other.example.com/one\nother.other.example.com/two\npod/web\n"}},
			{[]string{"query", "others", "--no-headers"}, said{Out: "default   one   10d\ndefault   two   10d\n"}},
			{[]string{"query", "others", "--no-headers", "--show-labels"}, said{Out: "default   one   10d   app=b=x=y,app=web\ndefault   two   10d   app=b=x=y,app=web\n"}},
			{[]string{"dump", "-o", "jsonpath={.items[*].metadata.name}"}, said{Code: 1, Out: "web", Err: reason}},
			{[]string{"query", "others", "-o", "json"}, said{Code: 1, Err: reason}},
			{[]string{"history"}, said{}},
		} {
			got := say(t.Context(), append(tt.args, "--db", path)...)
			if got.Code != tt.want.Code || tt.want.Out != "" && got.Out != tt.want.Out || !strings.Contains(got.Err, tt.want.Err) {
				t.Errorf("%q: %+v, want %+v", tt.args, got, tt.want)
			}
		}
		stop()
	}
	for _, args := range [][]string{{"compact"}, {"wipe", "others", "--yes"}, {"wipe", "--yes"}} {
		if got := say(t.Context(), append(args, "--db", path)...); got.Code != 0 {
			t.Errorf("%q: %+v", args, got)
		}
	}
}
