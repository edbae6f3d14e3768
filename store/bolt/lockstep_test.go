package bolt_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
	"github.com/informctl/informctl/store/mem"
)

var lockstepScript = script{keys: 12, pad: 10}

// TestLockstep makes the same random changes to a file, to a memory store and to a map,
// and sometimes crashes and reopens the file. All reads must agree after every step.
// After a crash the state must not be older than the last flush.
func TestLockstep(t *testing.T) {
	t.Parallel()
	crashes := 0
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "lockstep")
		mustStep(rt, err)
		defer func() { mustStep(rt, os.RemoveAll(dir)) }()
		l := &lockstep{dir: dir, crashes: &crashes}
		if rapid.Bool().Draw(rt, "encrypted") {
			l.keys = theKey
		}
		l.open(rt, scriptOptions())
		defer func() { mustStep(rt, l.db.Close()) }()
		l.become(rt, state{})
		l.list(rt)
		rt.Repeat(rapid.StateMachineActions(l))
	})
	t.Logf("%d crashes", crashes)
	if crashes < 100 {
		t.Errorf("%d crashes only", crashes)
	}
}

// state is the content of a scope.
type state struct {
	rv      string
	objects map[string]*corev1.ConfigMap
}

func (s state) String() string { return describeObjects(s.rv, s.objects) }

// lockstep holds two stores and the state that both should have. Its exported methods are
// the steps.
type lockstep struct {
	dir      string
	files    int
	revision int
	crashes  *int
	keys     codec.KeyProvider // nil: nothing is encrypted

	path   string
	db     *bolt.DB
	file   store.Store
	memory store.Store

	now state
	// since holds the states from the last flushed one on. After a crash the file has one
	// of them.
	since []state
}

func mustStep(rt *rapid.T, err error) {
	rt.Helper()
	if err != nil {
		rt.Fatalf("unexpected error: %v", err)
	}
}

func (l *lockstep) open(rt *rapid.T, opts store.Options) {
	if l.db == nil {
		l.path = filepath.Join(l.dir, fmt.Sprintf("%d.db", l.files))
		var err error
		l.db, err = bolt.Open(l.path, bolt.Options{
			CommitInterval: time.Millisecond, Keys: l.keys, EncryptAll: l.keys != nil,
		})
		mustStep(rt, err)
		if aside := l.db.SetAside(); aside != "" {
			rt.Fatalf("set aside as %s", aside)
		}
	}
	var err error
	l.file, err = l.db.Open(scriptScope(), opts)
	mustStep(rt, err)
}

func (l *lockstep) shut(rt *rapid.T) {
	mustStep(rt, l.db.Close())
	l.db = nil
	l.since = []state{l.now}
}

// become sets memory store and map to the known state of the file.
func (l *lockstep) become(rt *rapid.T, s state) {
	var err error
	l.memory, err = mem.New().Open(scriptScope(), scriptOptions())
	mustStep(rt, err)
	b := store.Batch{RV: s.rv}
	for _, cm := range s.objects {
		b.Changes = append(b.Changes, store.Change{Object: cm})
	}
	mustStep(rt, l.memory.Apply(b))
	l.now, l.since = s, []state{s}
}

func (l *lockstep) next() string {
	l.revision++
	return strconv.Itoa(l.revision)
}

func (l *lockstep) reached(s state) {
	l.now = s
	l.since = append(l.since, s)
}

func (l *lockstep) apply(rt *rapid.T, b store.Batch) {
	mustStep(rt, l.file.Apply(b))
	other := store.Batch{RV: b.RV}
	s := state{l.now.rv, maps.Clone(l.now.objects)}
	if s.objects == nil {
		s.objects = map[string]*corev1.ConfigMap{}
	}
	for _, c := range b.Changes {
		if c.IsDeletion() {
			delete(s.objects, c.Key)
			other.Changes = append(other.Changes, store.Change{Key: c.Key})
			continue
		}
		obj, err := l.file.Decode(c.Entry())
		mustStep(rt, err)
		cm := obj.(*corev1.ConfigMap)
		s.objects[cm.Namespace+"/"+cm.Name] = cm
		other.Changes = append(other.Changes, store.Change{Object: cm})
	}
	mustStep(rt, l.memory.Apply(other))
	if b.RV != "" {
		s.rv = b.RV
	}
	l.reached(s)
}

func (l *lockstep) batch(rt *rapid.T) store.Batch {
	var b store.Batch
	for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, lockstepScript.keys-1), 0, 6, rapid.ID[int]).Draw(rt, "keys") {
		c := store.Change{Key: lockstepScript.key(i)}
		l.revision++
		if rapid.IntRange(0, 3).Draw(rt, "delete") != 0 {
			c.Object = lockstepScript.object(i, l.revision)
		}
		b.Changes = append(b.Changes, c)
	}
	if rapid.Bool().Draw(rt, "with rv") {
		b.RV = l.next()
	}
	return b
}

// Batch changes some objects.
func (l *lockstep) Batch(rt *rapid.T) { l.apply(rt, l.batch(rt)) }

// Bookmark moves the checkpoint.
func (l *lockstep) Bookmark(*rapid.T) {
	rv := l.next()
	store.Indexer(l.file).Bookmark(rv)
	store.Indexer(l.memory).Bookmark(rv)
	l.reached(state{rv, l.now.objects})
}

// Invalidate drops the checkpoint's resource version and waits until that is written.
func (l *lockstep) Invalidate(rt *rapid.T) {
	mustStep(rt, l.file.Invalidate(rt.Context(), "drawn"))
	mustStep(rt, l.memory.Invalidate(rt.Context(), "drawn"))
	l.reached(state{"", l.now.objects})
	l.since = []state{l.now}
}

// Flush waits until everything is on disk.
func (l *lockstep) Flush(rt *rapid.T) {
	mustStep(rt, l.file.Flush(rt.Context()))
	mustStep(rt, logAddsUp(l.file))
	l.since = []state{l.now}
}

// Reopen closes the file and opens it again, sometimes with fewer indexes in between.
func (l *lockstep) Reopen(rt *rapid.T) {
	l.shut(rt)
	if rapid.Bool().Draw(rt, "other indexes") {
		opts := scriptOptions()
		opts.Indexes = []index.Index{index.Namespace()}
		l.open(rt, opts)
		l.shut(rt)
	}
	l.open(rt, scriptOptions())
}

// Fresh drops the whole content.
func (l *lockstep) Fresh(rt *rapid.T) {
	l.shut(rt)
	opts := scriptOptions()
	opts.Fresh = true
	l.open(rt, opts)
	l.become(rt, state{})
	l.list(rt)
}

// list writes an empty first list, so that a relist has something to compare with.
func (l *lockstep) list(rt *rapid.T) {
	l.apply(rt, store.Batch{RV: l.next()})
	l.Flush(rt)
}

// Relist compares with a list of all objects and stops at a random point.
func (l *lockstep) Relist(rt *rapid.T) {
	r, err := l.file.Relist()
	mustStep(rt, err)
	bolt.SetRelistLimit(r, 1<<10)
	for i := range lockstepScript.keys {
		old := l.now.objects[lockstepScript.key(i)]
		switch rapid.SampledFrom([]string{"as it was", "changed", "gone"}).Draw(rt, "object") {
		case "as it was":
			if old != nil {
				mustStep(rt, r.Add(old))
			}
		case "changed":
			l.revision++
			mustStep(rt, r.Add(lockstepScript.object(i, l.revision)))
		}
	}
	stop := rapid.IntRange(0, 6).Draw(rt, "parts")
	for b, err := range r.Parts(l.next()) {
		mustStep(rt, err)
		if stop--; stop < 0 {
			break
		}
		l.apply(rt, b)
	}
	if rapid.Bool().Draw(rt, "crash") {
		l.crash(rt, nil)
		return
	}
	mustStep(rt, r.Close())
}

// Crash takes the file between two commits.
func (l *lockstep) Crash(rt *rapid.T) { l.crash(rt, nil) }

// CrashInside takes the file before a write during a commit.
func (l *lockstep) CrashInside(rt *rapid.T) {
	n := rapid.IntRange(1, 12).Draw(rt, "write")
	var content []byte
	var err error
	bolt.HookWrites(l.db, func(next bolt.WriteAt) bolt.WriteAt {
		return func(b []byte, off int64) (int, error) {
			if n--; n == 0 {
				content, err = used(l.path)
			}
			return next(b, off)
		}
	})
	flushed := l.since
	l.Batch(rt)
	flushed = append(slices.Clone(flushed), l.now)
	mustStep(rt, l.file.Flush(rt.Context()))
	bolt.Quiet(l.db, func() {}) // waits until the hook has seen its writes
	mustStep(rt, err)
	l.since = flushed
	if content == nil {
		l.since = []state{l.now}
	}
	l.crash(rt, content)
}

// crash continues with the content of the file in a new file.
func (l *lockstep) crash(rt *rapid.T, content []byte) {
	*l.crashes++
	if content == nil {
		var err error
		bolt.Quiet(l.db, func() { content, err = used(l.path) })
		mustStep(rt, err)
	}
	mustStep(rt, l.db.Close())
	l.db = nil
	l.files++
	mustStep(rt, os.WriteFile(filepath.Join(l.dir, fmt.Sprintf("%d.db", l.files)), content, 0o600))
	l.open(rt, scriptOptions())
	got, err := describe(l.file, lockstepScript)
	mustStep(rt, err)
	mustStep(rt, logAddsUp(l.file))
	for _, s := range slices.Backward(l.since) {
		if s.String() == got {
			l.become(rt, s)
			return
		}
	}
	rt.Fatalf("after a crash the state is none of %d since the last flush:\n%s\nlast\n%s", len(l.since), got, l.now)
}

// Check compares all states. It runs after each step.
func (l *lockstep) Check(rt *rapid.T) {
	want := l.now.String()
	for name, s := range map[string]store.Store{"file": l.file, "memory": l.memory} {
		got, err := describe(s, lockstepScript)
		mustStep(rt, err)
		if got != want {
			rt.Fatalf("%s:\n%swant\n%s", name, got, want)
		}
	}
}
