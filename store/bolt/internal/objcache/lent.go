package objcache

import (
	"bytes"
	"maps"
	"reflect"
	"runtime"
	"sync"
	"time"
	"unsafe"
	"weak"

	kruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// lentObjects are the decoded objects that readers hold, and that may be too many for the
// cache. Readers who ask for the same state of an object share it and decode it once, as
// if every object was kept decoded. Nothing here keeps an object alive.
type lentObjects struct {
	mu      sync.Mutex            // protects the fields below
	states  map[string]*lentState // by file key
	watched bool                  // sweep is called after the next garbage collection
	swept   time.Time
}

// lentState is one state of an object.
type lentState struct {
	hash    []byte                       // of its content
	size    int                          // of the encoded object, in bytes
	encoded weak.Pointer[encodedForMany] // alive until the readers have decoded it
	object  weakObject
}

// encodedForMany is an encoded object that one or more readers are about to decode.
type encodedForMany struct {
	*lentState
	of   *lentObjects
	key  string
	raw  []byte
	cell *store.Cell // refers to the encodedForMany
}

const (
	// lendAbove is the size of what one read has to decode, in bytes, above which it is
	// shared with other readers.
	lendAbove = 1 << 20
	// sweepEvery bounds how often the objects that nobody holds any more are looked for.
	sweepEvery = time.Second
)

// object returns the object with a content, if a reader still holds it, and the size of
// the encoded object.
func (l *lentObjects) object(key string, hash []byte) (obj kruntime.Object, size int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.states[key]
	if s == nil || !bytes.Equal(s.hash, hash) {
		return nil, 0, false
	}
	obj, ok = s.object.get()
	return obj, s.size, ok
}

// share lets all readers of the entries that are not decoded yet decode them once. hashes
// are those of the contents. If begin is not set, only entries are shared that another
// reader has shared.
func (l *lentObjects) share(entries []store.Entry, hashes [][]byte, begin bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !begin && len(l.states) == 0 {
		return
	}
	if l.states == nil {
		l.states = map[string]*lentState{}
	}
	for i := range entries {
		if e := &entries[i]; e.Object == nil && e.Cell == nil && len(hashes[i]) > 0 {
			l.shareLocked(e, record.FileKey(e.Key), hashes[i], begin)
		}
	}
	l.watchLocked()
}

func (l *lentObjects) shareLocked(e *store.Entry, key string, hash []byte, begin bool) {
	if s := l.states[key]; s != nil && bytes.Equal(s.hash, hash) {
		if obj, ok := s.object.get(); ok {
			*e = store.Entry{Key: e.Key, Object: obj}
			return
		}
		if x := s.encoded.Value(); x != nil {
			e.Raw, e.Cell = x.raw, x.cell
			return
		}
	}
	if !begin {
		return
	}
	x := &encodedForMany{lentState: &lentState{hash: hash, size: record.RawSize(e.Raw)}, of: l, key: key, raw: e.Raw}
	x.cell = store.NewSharedCell(x.decoded)
	x.encoded, e.Cell = weak.Make(x), x.cell
	l.states[key] = x.lentState
}

// decoded is called when the object was decoded, or could not be.
func (x *encodedForMany) decoded(obj kruntime.Object, err error) {
	x.of.mu.Lock()
	defer x.of.mu.Unlock()
	if x.object = weakTo(obj); err != nil && x.of.states[x.key] == x.lentState {
		delete(x.of.states, x.key) // what was read may be damage that is mended by now
	}
}

func (l *lentObjects) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.states = nil
}

// watchLocked arranges for a sweep after the next garbage collection, if there is
// something to sweep.
func (l *lentObjects) watchLocked() {
	if !l.watched && len(l.states) > 0 {
		l.watched = true
		runtime.AddCleanup(new([64]byte), (*lentObjects).sweep, l)
	}
}

// sweep forgets the states that no reader holds any more. A goroutine of the Go runtime
// calls it.
func (l *lentObjects) sweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.swept) >= sweepEvery {
		l.swept = now
		maps.DeleteFunc(l.states, func(_ string, s *lentState) bool {
			_, held := s.object.get()
			return !held && s.encoded.Value() == nil
		})
	}
	l.watched = false
	l.watchLocked()
}

// weakObject is a weak pointer to an object of any type. The zero value is that to none.
type weakObject struct {
	of reflect.Type
	at weak.Pointer[byte]
}

func weakTo(obj kruntime.Object) weakObject {
	v := reflect.ValueOf(obj)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return weakObject{}
	}
	return weakObject{v.Type().Elem(), weak.Make((*byte)(v.UnsafePointer()))}
}

func (w weakObject) get() (kruntime.Object, bool) {
	p := w.at.Value()
	if p == nil {
		return nil, false
	}
	obj, ok := reflect.NewAt(w.of, unsafe.Pointer(p)).Interface().(kruntime.Object)
	return obj, ok
}
