package bolt_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	bbolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

var small = script{keys: 40, pad: 100}

func TestOpenCreates(t *testing.T) {
	defer unix.Umask(unix.Umask(0))
	path := filepath.Join(t.TempDir(), "a", "b", "informers.db")
	var lines []string
	logger := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	for range 2 {
		db, err := bolt.Open(path, bolt.Options{Logger: logger})
		must(t, err)
		must(t, db.Close())
	}
	if len(lines) != 1 || !strings.Contains(lines[0], fmt.Sprintf(`"Made the directory of the cache file" "directory"=%q`, filepath.Dir(path))) {
		t.Errorf("logged %q", lines)
	}
	db, err := bolt.Open(path, bolt.Options{})
	must(t, err)
	defer func() { must(t, db.Close()) }()
	if got := db.SetAside(); got != "" {
		t.Errorf("a new file set aside %s", got)
	}
	for name, want := range map[string]fs.FileMode{
		path: 0o600, filepath.Dir(path): 0o700, filepath.Dir(filepath.Dir(path)): 0o700,
	} {
		info, err := os.Stat(name)
		must(t, err)
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", name, got, want)
		}
	}
}

// TestOpenWithoutPath checks that an empty path is an error, and no database that holds
// everything in memory.
func TestOpenWithoutPath(t *testing.T) {
	for name, open := range map[string]func(string, bolt.Options) (*bolt.DB, error){"Open": bolt.Open, "OpenReadOnly": bolt.OpenReadOnly} {
		if _, err := open("", bolt.Options{}); err == nil || !strings.Contains(err.Error(), "the path is empty") {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

func TestOpenReadOnlyMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "informers.db")
	if _, err := bolt.OpenReadOnly(path, bolt.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error is %v", err)
	}
	if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory was made: %v", err)
	}
}

// TestReadOnlyIndexes checks that a reader answers by each index that it asks for: of one
// that the file does not have, or not ready, it computes the entries.
func TestReadOnlyIndexes(t *testing.T) {
	dir := t.TempDir()
	path, interrupted := filepath.Join(dir, "informers.db"), filepath.Join(dir, "interrupted.db")
	plain := store.Options{Codec: scriptOptions().Codec}
	db, s, err := openScriptWith(path, bolt.Options{}, plain)
	must(t, err)
	const n = 600
	batch := store.Batch{RV: "10"}
	for i := range n {
		obj := configMap(fmt.Sprintf("default/c%03d", i), "5", "x").(*corev1.ConfigMap)
		obj.Labels = map[string]string{"app": "other"}
		if i%3 == 0 {
			obj.Labels["app"] = "web"
		}
		batch.Changes = append(batch.Changes, store.Change{Key: "default/" + obj.Name, Object: obj})
	}
	must(t, s.Apply(batch))
	must(t, db.Close())
	// The copy is of a process that dies while it builds the index.
	app, calls := index.Label("app"), 0
	interrupts := app
	interrupts.Func = func(obj any) ([]string, error) {
		if calls++; calls == n-1 {
			b, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(interrupted, b, 0o600))
		}
		return app.Func(obj)
	}
	with := plain
	with.Indexes = []index.Index{interrupts}
	without, err := os.ReadFile(path)
	must(t, err)
	db, _, err = openScriptWith(path, bolt.Options{}, with)
	must(t, err)
	must(t, db.Close())
	stored := filepath.Join(dir, "stored.db")
	must(t, os.Rename(path, stored))
	must(t, os.WriteFile(path, without, 0o600))

	web, err := labels.Parse("app=web")
	must(t, err)
	other := app
	other.Version, other.Func = "2", func(any) ([]string, error) { return []string{"web"}, nil }
	for name, c := range map[string]struct {
		path string
		opts store.Options
		want int
	}{
		"stored":                {stored, store.Options{Indexes: []index.Index{app}}, n / 3},
		"stored, not asked for": {stored, store.Options{}, n / 3},
		"stored, all decoded":   {stored, store.Options{Indexes: []index.Index{app}, DecodedBytes: -1}, n / 3},
		"stored, another now":   {stored, store.Options{Indexes: []index.Index{other}}, n},
		"a function":            {path, store.Options{Indexers: cache.Indexers{app.Name: app.Func}}, n / 3},
		"not stored":            {path, store.Options{Indexes: []index.Index{app}}, n / 3},
		"half stored":           {interrupted, store.Options{Indexes: []index.Index{app}}, n / 3},
	} {
		t.Run(name, func(t *testing.T) {
			c.opts.Codec = plain.Codec
			db, err := bolt.OpenReadOnly(c.path, bolt.Options{})
			must(t, err)
			defer func() { must(t, db.Close()) }()
			s, err := db.Open(scriptScope(), c.opts)
			must(t, err)
			keys, err := s.Keys(store.Query{Index: app.Name, Values: []string{"web"}})
			must(t, err)
			objects, err := s.Objects(store.Query{Index: app.Name, Values: []string{"web"}})
			must(t, err)
			values, err := s.Values(app.Name)
			must(t, err)
			if len(keys) != c.want || len(objects) != c.want || !slices.Contains(values, "web") {
				t.Errorf("by the index %d keys and %d objects, want %d; values %q", len(keys), len(objects), c.want, values)
			}
			selected, err := s.Select(store.Query{Selector: web})
			if must(t, err); len(selected) != n/3 {
				t.Errorf("by the label %d objects, want %d", len(selected), n/3)
			}
		})
	}
}

// TestReadOnlyIndexesOfDamage checks that a damaged object keeps nobody from reading
// others, although the entries of an index cannot be computed.
func TestReadOnlyIndexesOfDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	plain := store.Options{Codec: scriptOptions().Codec}
	db, s, err := openScriptWith(path, bolt.Options{}, plain)
	must(t, err)
	must(t, s.Apply(store.Batch{RV: "10", Changes: []store.Change{
		{Object: configMap("default/a", "5", "x")}, {Object: configMap("default/b", "6", "x")},
	}}))
	must(t, db.Close())
	inFile, err := bbolt.Open(path, 0o600, nil)
	must(t, err)
	must(t, inFile.Update(func(tx *bbolt.Tx) error {
		objects := tx.Bucket([]byte("scope")).Bucket([]byte(scriptScope().ID())).Bucket([]byte("objects"))
		k, v := objects.Cursor().First()
		v = bytes.Clone(v)
		v[len(v)-1] ^= 1
		return objects.Put(bytes.Clone(k), v)
	}))
	must(t, inFile.Close())
	db, err = bolt.OpenReadOnly(path, bolt.Options{})
	must(t, err)
	defer func() { must(t, db.Close()) }()
	plain.Indexers = cache.Indexers{"app": index.Label("app").Func}
	s, err = db.Open(scriptScope(), plain)
	must(t, err)
	if _, ok, err := s.Object("default/b"); err != nil || !ok {
		t.Errorf("another object: %t, %v", ok, err)
	}
	if keys, err := s.Keys(store.Query{Index: "app", Values: []string{"web"}}); !errors.Is(err, store.ErrNoIndex) {
		t.Errorf("by the index: %q, %v", keys, err)
	}
}

// childHold opens a database and holds it until its standard input is closed.
func childHold(args []string) error {
	open := bolt.Open
	if args[1] == "reader" {
		open = bolt.OpenReadOnly
	}
	db, err := open(args[0], bolt.Options{})
	if err != nil {
		return err
	}
	fmt.Println("open")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return db.Close()
}

// childOpen opens and closes the scope of scripts.
func childOpen(args []string) error {
	db, _, err := openScript(args[0], bolt.Options{})
	if err != nil {
		return err
	}
	return db.Close()
}

// hold opens the file in another process until release is called.
func hold(t *testing.T, path, how string) (release func()) {
	t.Helper()
	cmd := child(t, "hold", path, how)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "open\n" {
		t.Fatalf("the other process says %q: %v", line, err)
	}
	return func() {
		must(t, in.Close())
		must(t, cmd.Wait())
	}
}

func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	scriptFile(t, path, small, 2)
	open := map[string]func() (*bolt.DB, error){
		"writer": func() (*bolt.DB, error) { return bolt.Open(path, bolt.Options{LockTimeout: 200 * time.Millisecond}) },
		"reader": func() (*bolt.DB, error) {
			return bolt.OpenReadOnly(path, bolt.Options{LockTimeout: 200 * time.Millisecond})
		},
	}
	for _, tt := range []struct{ holder, opener string }{{"writer", "writer"}, {"writer", "reader"}, {"reader", "writer"}} {
		t.Run(tt.holder+" holds it, "+tt.opener+" opens it", func(t *testing.T) {
			before := read(t, path)
			release := hold(t, path, tt.holder)
			start := time.Now()
			_, err := open[tt.opener]()
			if !errors.Is(err, store.ErrLocked) || !strings.Contains(fmt.Sprint(err), path) {
				t.Errorf("error is %v", err)
			}
			if took := time.Since(start); took < 200*time.Millisecond {
				t.Errorf("gave up after %s", took)
			}
			release()
			if !bytes.Equal(before, read(t, path)) {
				t.Error("the file has changed")
			}
			db, err := open[tt.opener]()
			must(t, err)
			must(t, db.Close())
		})
	}
	t.Run("two readers", func(t *testing.T) {
		release := hold(t, path, "reader")
		db, err := open["reader"]()
		must(t, err)
		must(t, db.Close())
		release()
	})
	t.Run("holder ends meanwhile", func(t *testing.T) {
		release := hold(t, path, "writer")
		opened := make(chan error)
		go func() {
			db, err := bolt.Open(path, bolt.Options{LockTimeout: time.Minute})
			if err == nil {
				err = db.Close()
			}
			opened <- err
		}()
		release()
		must(t, <-opened)
	})
}

// TestOpenTogether opens the same missing or damaged file twice at the same time. One
// Open must succeed, and neither may remove the file that the other has begun.
func TestOpenTogether(t *testing.T) {
	for name, content := range map[string][]byte{"missing": nil, "damaged": healthy(t)[:100]} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				path := filepath.Join(t.TempDir(), "informers.db")
				if content != nil {
					must(t, os.WriteFile(path, content, 0o600))
				}
				together(t, path)
			}
		})
	}
}

func together(t *testing.T, path string) {
	t.Helper()
	type result struct {
		db  *bolt.DB
		err error
	}
	results := make(chan result)
	for range 3 {
		go func() {
			db, err := bolt.Open(path, bolt.Options{LockTimeout: time.Millisecond})
			results <- result{db, err}
		}()
	}
	var winners []*bolt.DB
	for range 3 {
		r := <-results
		if r.err == nil {
			winners = append(winners, r.db)
		} else if !errors.Is(r.err, store.ErrLocked) {
			t.Errorf("error is %v", r.err)
		}
	}
	if len(winners) > 1 {
		t.Errorf("%d hold the file at once", len(winners))
	}
	for _, db := range winners {
		must(t, db.Close())
	}
}

// healthy returns the content of a database with one scope.
func healthy(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "informers.db")
	scriptFile(t, path, small, 3)
	return trimmed(read(t, path))
}

// trimmed drops the unused part at the end of a file.
func trimmed(b []byte) []byte { return b[:int(highWater(b))*pageSize] }

func patched(b []byte, off int, with []byte) []byte {
	b = bytes.Clone(b)
	copy(b[off:], with)
	return b
}

// foreign returns a healthy bbolt file of another program.
func foreign(t *testing.T, opts *bbolt.Options) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "theirs.db")
	db, err := bbolt.Open(path, 0o600, opts)
	must(t, err)
	must(t, db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte("theirs"))
		if err != nil {
			return err
		}
		return b.Put([]byte("k"), []byte("v"))
	}))
	must(t, db.Close())
	return read(t, path)
}

// formatted returns a database with the given format.
func formatted(t *testing.T, format string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "formatted.db")
	must(t, os.WriteFile(path, healthy(t), 0o600))
	db, err := bbolt.Open(path, 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("format"), []byte(format))
	}))
	must(t, db.Close())
	return read(t, path)
}

// TestFormatIsANumber checks that arbitrary bytes after the format's name in a damaged
// file are not taken for a newer format and are not printed.
func TestFormatIsANumber(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	must(t, os.WriteFile(path, formatted(t, "informctl cache format 2scopes\x00\x01"), 0o600))
	_, err := bolt.OpenReadOnly(path, bolt.Options{})
	wantError(t, err, path, damaged, nil)
	db, err := bolt.Open(path, bolt.Options{})
	must(t, err)
	if db.SetAside() == "" {
		t.Error("it is not set aside")
	}
	must(t, db.Close())
}

// scopeless returns a healthy file without its scopes, which are gone without a trace.
func scopeless(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "scopeless.db")
	must(t, os.WriteFile(path, healthy(t), 0o600))
	db, err := bbolt.Open(path, 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("scope")) }))
	must(t, db.Close())
	return read(t, path)
}

type outcome int

const (
	opens       outcome = iota // with all its data
	damaged                    // set aside by Open, ErrCorrupt from OpenReadOnly
	treacherous                // set aside by Open, but readable: only writing does harm
	notOurs
	fails // in another way, described by the text
)

func TestOpenWhat(t *testing.T) {
	good := healthy(t)
	zeros := make([]byte, pageSize)
	tests := map[string]struct {
		content []byte
		want    outcome
		text    []string
	}{
		"healthy":                        {content: good, want: opens},
		"empty":                          {content: []byte{}, want: damaged},
		"both meta pages zeroed":         {content: patched(patched(good, 0, zeros), pageSize, zeros), want: damaged},
		"first meta page zeroed":         {content: patched(good, 0, zeros), want: opens},
		"second meta page zeroed":        {content: patched(good, pageSize, zeros), want: opens},
		"all zeros":                      {content: make([]byte, 4*pageSize), want: damaged},
		"garbage":                        {content: bytes.Repeat([]byte{0xA5, 0x17, 0x00, 0xED}, 5000), want: notOurs},
		"text":                           {content: []byte("apiVersion: v1\nkind: Config\n"), want: notOurs},
		"one letter":                     {content: []byte("x"), want: notOurs},
		"another bbolt file":             {content: foreign(t, nil), want: notOurs},
		"another, no freelist":           {content: foreign(t, &bbolt.Options{NoFreelistSync: true}), want: notOurs},
		"another, big pages":             {content: foreign(t, &bbolt.Options{PageSize: 1 << 15}), want: notOurs},
		"newer format":                   {content: formatted(t, "informctl cache format 3"), want: fails, text: []string{"format 3", "format 2"}},
		"cut inside a page":              {content: good[:len(good)-pageSize-100], want: damaged},
		"scopes that are gone":           {content: scopeless(t), want: damaged},
		"a scope that is none":           {content: unbucketed(t, good), want: damaged},
		"garbage in the freelist":        {content: patched(good, freelistPage(good)*pageSize+8, bytes.Repeat([]byte{0x10, 0, 0xFF, 0xFF}, 100)), want: treacherous},
		"freelist frees what is in use":  {content: misfreed(good), want: treacherous},
		"branch page with another order": {content: misordered(t), want: damaged},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			must(t, os.WriteFile(path, tt.content, 0o600))
			testOpenReadOnly(t, path, tt.want, tt.text)
			testOpen(t, path, tt.want, tt.text)
		})
	}
}

func TestOpenCutShort(t *testing.T) {
	good := healthy(t)
	path := filepath.Join(t.TempDir(), "informers.db")
	for n := 1; n <= 80; n++ {
		must(t, os.WriteFile(path, good[:n], 0o600))
		_, err := bolt.OpenReadOnly(path, bolt.Options{})
		wantError(t, err, path, damaged, nil)
		db, err := bolt.Open(path, bolt.Options{})
		must(t, err)
		if got := read(t, db.SetAside()); !bytes.Equal(got, good[:n]) {
			t.Errorf("%d bytes were set aside as %d", n, len(got))
		}
		must(t, db.Close())
	}
	wantFiles(t, path, 3)
}

// testOpenReadOnly also checks that the file and its directory do not change.
func testOpenReadOnly(t *testing.T, path string, want outcome, text []string) {
	t.Helper()
	before, stat := read(t, path), mustStat(t, path)
	db, err := bolt.OpenReadOnly(path, bolt.Options{LockTimeout: time.Millisecond})
	if err == nil {
		var s store.Store
		if s, err = db.Open(scriptScope(), scriptOptions()); err == nil && (want == opens || want == treacherous) {
			wantReadable(t, s)
		} else if err == nil {
			_, err = describe(s, small)
		}
		must(t, db.Close())
	}
	wantError(t, err, path, want, text)
	if now := mustStat(t, path); !bytes.Equal(before, read(t, path)) || !now.ModTime().Equal(stat.ModTime()) {
		t.Error("OpenReadOnly changed the file")
	}
	wantFiles(t, path, 1)
}

// wantReadable fails unless a store has the state of batch 3, or of batch 2 if a meta
// page is lost.
func wantReadable(t *testing.T, s store.Store) {
	t.Helper()
	got, err := describe(s, small)
	must(t, err)
	if got != small.want(3) && got != small.want(2) {
		t.Errorf("state is\n%s", got)
	}
}

func wantError(t *testing.T, err error, path string, want outcome, text []string) {
	t.Helper()
	ok := false
	switch want {
	case opens:
		ok = err == nil
	case treacherous:
		ok = err == nil
	case damaged:
		var c *store.CorruptionError
		ok = errors.Is(err, store.ErrCorrupt) && errors.As(err, &c) && c.Path == path && c.Where != ""
	case notOurs:
		ok = errors.Is(err, store.ErrNotOurs)
	case fails:
		ok = err != nil && !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrNotOurs)
	}
	for _, part := range text {
		ok = ok && strings.Contains(err.Error(), part)
	}
	if !ok || err != nil && !strings.Contains(err.Error(), path) {
		t.Errorf("error is %v", err)
	}
}

func testOpen(t *testing.T, path string, want outcome, text []string) {
	t.Helper()
	before, stat := read(t, path), mustStat(t, path)
	db, err := bolt.Open(path, bolt.Options{LockTimeout: time.Millisecond})
	if want == notOurs || want == fails {
		wantError(t, err, path, want, text)
		if now := mustStat(t, path); !bytes.Equal(before, read(t, path)) || !now.ModTime().Equal(stat.ModTime()) {
			t.Error("Open changed a file that it refused")
		}
		wantFiles(t, path, 1)
		return
	}
	must(t, err)
	defer func() { must(t, db.Close()) }()
	s, err := db.Open(scriptScope(), scriptOptions())
	must(t, err)
	if want == opens {
		if got := db.SetAside(); got != "" {
			t.Errorf("set aside as %s", got)
		}
		wantReadable(t, s)
		return
	}
	aside := db.SetAside()
	if !strings.HasPrefix(aside, path+".corrupt-") {
		t.Fatalf("set aside as %q", aside)
	}
	if !bytes.Equal(before, read(t, aside)) {
		t.Error("what was set aside is not what was there")
	}
	if reason := read(t, aside+".reason"); !bytes.Contains(reason, []byte(path)) {
		t.Errorf("reason is %q", reason)
	}
	wantFiles(t, path, 3)
	wantState(t, s, small, 0)
	applyScript(t, s, small, 1, 2)
	wantState(t, s, small, 2)
}

// TestSetAsideKeepsNewest damages a file twice and checks that the newest one is kept.
func TestSetAsideKeepsNewest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in[form]ers*.db")
	for _, content := range []string{"first", "second"} {
		must(t, os.WriteFile(path, append(healthy(t)[:100], content...), 0o600))
		db, err := bolt.Open(path, bolt.Options{})
		must(t, err)
		must(t, db.Close())
		if got := read(t, db.SetAside()); !bytes.HasSuffix(got, []byte(content)) {
			t.Errorf("kept %q, want %s", got[100:], content)
		}
		wantFiles(t, path, 3)
	}
}

// TestSetAsideBesideWhatStays checks that a damaged file is replaced although an earlier
// one cannot be removed.
func TestSetAsideBesideWhatStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	must(t, os.MkdirAll(filepath.Join(path+".corrupt-kept", "x"), 0o700))
	must(t, os.WriteFile(path, healthy(t)[:100], 0o600))
	db, err := bolt.Open(path, bolt.Options{})
	must(t, err)
	defer func() { must(t, db.Close()) }()
	if db.Suspended() != nil || db.SetAside() == "" {
		t.Errorf("set aside as %q, suspended: %v", db.SetAside(), db.Suspended())
	}
}

func TestOpenOtherKinds(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "informers.db"), filepath.Join(dir, "link.db")
	scriptFile(t, file, small, 3)
	before := read(t, file)
	must(t, os.Symlink(file, link))
	for name, open := range openers() {
		if db, err := open(link); err == nil {
			t.Errorf("%s follows a symbolic link", name)
			_ = db.Close()
		} else if !strings.Contains(err.Error(), link) {
			t.Errorf("%s of a link: %v", name, err)
		}
		if db, err := open(dir); err == nil {
			t.Errorf("%s of a directory succeeds", name)
			_ = db.Close()
		} else if !strings.Contains(err.Error(), dir) {
			t.Errorf("%s of a directory: %v", name, err)
		}
	}
	if !bytes.Equal(before, read(t, file)) {
		t.Error("the file behind the link has changed")
	}
}

func openers() map[string]func(string) (*bolt.DB, error) {
	return map[string]func(string) (*bolt.DB, error){
		"Open":         func(path string) (*bolt.DB, error) { return bolt.Open(path, bolt.Options{}) },
		"OpenReadOnly": func(path string) (*bolt.DB, error) { return bolt.OpenReadOnly(path, bolt.Options{}) },
	}
}

// TestOpenPermissions runs in a child process without root rights, because root ignores
// file modes.
func TestOpenPermissions(t *testing.T) {
	dir, err := os.MkdirTemp("", "bolt-permissions")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "informers.db")
	scriptFile(t, path, small, 3)
	before := read(t, path)
	for _, mode := range []fs.FileMode{0o000, 0o444} {
		must(t, os.Chmod(path, mode))
		cmd := child(t, "unreadable", path, fmt.Sprint(mode == 0o444))
		if os.Geteuid() == 0 {
			exe := filepath.Join(dir, "child")
			if _, err := os.Stat(exe); err != nil {
				must(t, os.WriteFile(exe, read(t, cmd.Path), 0o755))
			}
			cmd.Path = exe
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("mode %o: %v\n%s", mode, err, out)
		}
	}
	must(t, os.Chmod(path, 0o600))
	if !bytes.Equal(before, read(t, path)) {
		t.Error("the file has changed")
	}
	wantPattern(t, path+".*", 0)
}

func childUnreadable(args []string) error {
	path, readable := args[0], args[1] == "true"
	if _, err := bolt.Open(path, bolt.Options{}); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), path) {
		return fmt.Errorf("Open: error is %w", err)
	}
	db, err := bolt.OpenReadOnly(path, bolt.Options{})
	if !readable {
		if !errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("OpenReadOnly: error is %w", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	s, err := db.Open(scriptScope(), scriptOptions())
	if err != nil {
		return err
	}
	if got, err := describe(s, small); err != nil || got != small.want(3) {
		return fmt.Errorf("state is\n%s (%w)", got, err)
	}
	return db.Close()
}

func mustStat(t *testing.T, path string) fs.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info
}

// wantFiles fails unless the directory of path contains n files.
func wantFiles(t *testing.T, path string, n int) {
	t.Helper()
	wantPattern(t, filepath.Join(filepath.Dir(path), "*"), n)
}

func wantPattern(t *testing.T, pattern string, n int) {
	t.Helper()
	found, err := filepath.Glob(pattern)
	// Lock files exist while the database is open.
	found = slices.DeleteFunc(found, func(path string) bool {
		return strings.HasSuffix(path, "informers.db.lock") || strings.HasSuffix(path, "ers*.db.lock")
	})
	if err != nil || len(found) != n {
		t.Errorf("%d files, want %d: %q (%v)", len(found), n, found, err)
	}
}
