package informer

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/informer/internal/delivery"
	"github.com/informctl/informctl/store"
)

const (
	// logEntries is the number of changes that an informer remembers, and logBytes the
	// number of bytes of their keys and of the deleted objects.
	logEntries = 8192
	logBytes   = 8 << 20
	// replayChunk is the number of changes that are read at a time under the informer's
	// mu.
	replayChunk = 64
)

// changeLog contains the latest changes in the order of the watch, for a client that
// knows the state at a resource version and requests the changes after it. It takes up to
// 2 MiB of memory plus logBytes. It is nil before KeepChanges.
//
// The log contains deleted objects, but no others. For another object, the client
// receives the present state at the place of the last change, which is the same state. So
// a client that has received all lines up to a resource version knows at least the state
// at that version.
//
// The changes of a list have no place in the order of the watch, so a list that changed
// anything empties the log. The log then begins at the list's resource version, unless a
// client may know that version without knowing the list's changes. This can happen if the
// client followed during this list, or during an earlier list that did not finish, and
// received the newest object but not the others, or if the informer had reached that
// version before. The log then begins after the next change or bookmark. After a rewound
// history, the log begins after the highest resource version of the former history.
//
// Informer.mu protects the fields.
type changeLog struct {
	from    string // the log has all changes after it; "" if it has none
	upTo    string // the latest known resource version, or ""
	beyond  string // from must be later than it; "" means no bound
	listing bool   // a list is being compared or applied
	told    bool   // a client has received part of this or an unfinished list

	entries []logEntry
	first   uint64            // number of entries[0]
	newest  map[string]uint64 // number of the last entry of each key
	bytes   int
	zstd    *codec.Zstd
}

// logEntry is one change.
type logEntry struct {
	kind EventType // Added, Modified or Deleted
	key  string
	rv   string
	last []byte // the deleted object, encoded and compressed
}

func (e logEntry) size() int { return len(e.key) + len(e.last) }

// newPacker returns the compressor for the deleted objects of logs.
func newPacker() *codec.Zstd {
	z, err := codec.NewZstd(nil)
	if err != nil {
		panic(err) // only an invalid dictionary causes an error
	}
	return z
}

// KeepChanges makes informers remember their latest changes from now on, for consumers
// whose Follow begins at a resource version. Each informer remembers 8,192 changes, fewer
// if many large objects were deleted, in at most 10 MiB. Calling KeepChanges again does
// nothing.
func KeepChanges(informers ...*Informer) {
	packer := newPacker()
	for _, inf := range informers {
		inf.keepLog(packer)
	}
}

// keepLog is KeepChanges for one informer; z compresses the deleted objects.
func (inf *Informer) keepLog(z *codec.Zstd) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if inf.log == nil {
		inf.log = &changeLog{newest: map[string]uint64{}, zstd: z}
		inf.beginLogLocked()
	}
}

// beginLogLocked begins the log at the checkpoint of the store.
func (inf *Informer) beginLogLocked() {
	if inf.log != nil && inf.isOpenedLocked() && inf.hold.isEmpty() {
		inf.log.complete(inf.store.Checkpoint().RV)
	}
}

// packer returns the compressor of the log, nil if there is no log.
func (inf *Informer) packer() *codec.Zstd {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if inf.log == nil {
		return nil
	}
	return inf.log.zstd
}

// logged sets the fields of a watch's change that the log needs. No other goroutine may
// use the object meanwhile.
func (inf *Informer) logged(c *change, z *codec.Zstd, obj runtime.Object) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return
	}
	c.rv = accessor.GetResourceVersion()
	if c.Last == nil {
		return
	}
	if b, err := inf.codec.Encode(obj); err == nil {
		c.packed = z.Compress(nil, b)
	}
}

// isLater reports whether rv is later than another resource version. It is false if one
// of them is invalid.
func isLater(rv, than string) bool {
	order, err := resourceversion.CompareResourceVersion(rv, than)
	return err == nil && order > 0
}

// complete records that all changes up to rv have been applied. During a list it does
// nothing: listed calls it at the end.
func (l *changeLog) complete(rv string) {
	if _, err := resourceversion.CompareResourceVersion(rv, rv); err != nil || l.listing {
		return
	}
	if l.upTo == "" || isLater(rv, l.upTo) {
		l.upTo = rv
	}
	if l.from == "" && (l.beyond == "" || isLater(rv, l.beyond)) {
		l.from = rv
	}
}

// list records that a list begins.
func (l *changeLog) list() { l.listing = true }

// listed records that a list has been applied.
func (l *changeLog) listed(rv string) {
	isKnown := l.told || l.upTo == rv
	l.listing, l.told = false, false
	if l.upTo != "" && isLater(l.upTo, rv) {
		l.forget()
		l.beyond = l.upTo
	}
	if l.from == "" && isKnown && (l.beyond == "" || isLater(rv, l.beyond)) {
		l.beyond = rv
	}
	l.complete(rv)
}

// forget removes all entries. It skips a number, so that clients of the log notice it.
func (l *changeLog) forget() {
	l.from, l.first, l.entries, l.bytes = "", l.end()+1, nil, 0
	clear(l.newest)
}

func (l *changeLog) end() uint64 { return l.first + uint64(len(l.entries)) }

// noteBatch adds the changes of a batch. old contains the states before it. clients says
// that a client receives the changes.
func (l *changeLog) noteBatch(changes []change, old map[string]store.Entry, clients bool) {
	stored := make(map[string]bool, len(old))
	for key := range old {
		stored[key] = true
	}
	for _, c := range changes {
		was, is := stored[c.Key], c.Is.Key != ""
		switch {
		case c.fate == isReplay:
			l.noteReplayed(c)
			continue
		case c.fate == isRefused, !was && !is:
			continue
		case is && was:
			l.note(Modified, c)
		case is:
			l.note(Added, c)
		case c.Last == nil:
			c.packed = nil
			fallthrough
		default:
			l.note(Deleted, c)
		}
		stored[c.Key] = is
		l.told = l.told || clients && c.rv == ""
	}
}

// note adds a change.
func (l *changeLog) note(k EventType, c change) {
	last := l.from
	if n := len(l.entries); n > 0 {
		last = l.entries[n-1].rv
	}
	order, err := resourceversion.CompareResourceVersion(c.rv, last)
	if err != nil || order < 0 || k == Deleted && c.packed == nil {
		l.forget() // the log has not begun, or the change has no place in it
		return
	}
	e := logEntry{kind: k, key: c.Key, rv: c.rv}
	if k == Deleted {
		e.last = c.packed
	}
	l.newest[e.key] = l.end()
	l.entries = append(l.entries, e)
	for l.bytes += e.size(); len(l.entries) > logEntries || l.bytes > logBytes; {
		l.drop()
	}
}

// noteReplayed adds a replay: a client that knows only the state at the stored resource
// version does not know the change.
func (l *changeLog) noteReplayed(c change) {
	switch {
	case l == nil:
	case c.Is.Key == "":
		l.note(Deleted, c)
	case c.created:
		l.note(Added, c)
	default:
		l.note(Modified, c)
	}
}

// drop removes the oldest change.
func (l *changeLog) drop() {
	e := l.entries[0]
	if l.newest[e.key] == l.first {
		delete(l.newest, e.key)
	}
	l.entries[0] = logEntry{} // the array may live on for a while
	l.entries, l.first, l.bytes, l.from = l.entries[1:], l.first+1, l.bytes-e.size(), e.rv
}

// errOvertaken indicates a consumer that reads the log more slowly than the log advances.
var errOvertaken = errors.New("what the client was to be told next is not known any more")

// logAfter returns the number of the first change after a resource version.
func (inf *Informer) logAfter(rv string) (n uint64, err error) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	l := inf.log
	switch {
	case inf.phase == ended:
		return 0, ErrStopped
	case l == nil:
		return 0, atPlace(ErrExpired, "resource version %s is not remembered: KeepChanges was not called", rv)
	case !inf.isOpenedLocked():
		return 0, ErrNotOpened
	case l.from == "":
		return 0, atPlace(ErrExpired, "resource version %s has expired: all objects were listed anew, and changes are known from the next one on", rv)
	case isLater(l.from, rv):
		return 0, atPlace(ErrForgotten, "resource version %s has expired: changes are known from resource version %s on", rv, l.from)
	case isLater(rv, l.upTo):
		return 0, atPlace(ErrAhead, "resource version %s is ahead of the informer, which knows resource version %s", rv, l.upTo)
	}
	i := sort.Search(len(l.entries), func(i int) bool { return isLater(l.entries[i].rv, rv) })
	return l.first + uint64(i), nil
}

// isListed reports whether a client that receives an object with this resource version
// may lack earlier changes, because a list is delivered in key order. It may be true for
// a change of the watch, too.
func (inf *Informer) isListed(rv string) bool {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	l := inf.log
	return l != nil && (l.from == "" || l.listing || l.beyond != "" && !isLater(rv, l.beyond))
}

// replay reads the log for one client.
type replay struct {
	inf  *Informer
	feed *feed
	next uint64 // number of the next change
	// fresh contains the keys of objects whose add was left out because they change
	// later.
	fresh map[string]struct{}
}

// replayed is one line. Its object is not decoded yet.
type replayed struct {
	kind  EventType
	key   string
	entry store.Entry
	last  []byte // the deleted object, instead of entry
}

// take returns the next lines. At the end of the log, it adds the feed as a handler,
// which receives all later changes.
func (r *replay) take() (lines []replayed, h *delivery.Registration, err error) {
	err = r.inf.hub.Do(func(turn delivery.Turn) error {
		var atEnd bool
		if lines, atEnd, err = r.lines(); atEnd {
			h, err = r.inf.addFromNow(turn, r.feed)
		}
		return err
	})
	return lines, h, err
}

// lines returns the next lines, or that there are none.
func (r *replay) lines() (lines []replayed, atEnd bool, err error) {
	inf := r.inf
	inf.mu.Lock()
	defer inf.mu.Unlock()
	l := inf.log
	if r.next < l.first {
		return nil, false, errOvertaken
	}
	if r.next == l.end() {
		return nil, true, nil
	}
	entries := l.entries[r.next-l.first:]
	for _, e := range entries[:min(len(entries), replayChunk)] {
		_, fresh := r.fresh[e.key]
		isLast := l.newest[e.key] == r.next
		r.next++
		switch {
		case e.kind == Deleted && fresh: // the client does not know the object
		case e.kind == Deleted:
			lines = append(lines, replayed{kind: Deleted, key: e.key, last: e.last})
		case !isLast:
			if e.kind == Added {
				r.fresh[e.key] = struct{}{}
			}
			continue
		default:
			entry, ok, err := inf.store.Entry(e.key)
			if err == nil && !ok {
				err = errOvertaken
			}
			if err != nil {
				return nil, false, err
			}
			kind := Modified
			if fresh || e.kind == Added {
				kind = Added
			}
			lines = append(lines, replayed{kind: kind, key: e.key, entry: entry})
		}
		delete(r.fresh, e.key)
	}
	return lines, false, nil
}

// yield yields the changes of the log, chunk by chunk. It returns the handler that
// continues from there; goOn is false if the consumer has stopped.
func (r *replay) yield(ctx context.Context, yield func(Event, error) bool) (h *delivery.Registration, goOn bool, err error) {
	for ctx.Err() == nil {
		lines, h, err := r.take()
		if err != nil || h != nil {
			return h, err == nil, err
		}
		for _, line := range lines {
			obj, err := r.decode(line)
			if err != nil {
				return nil, false, err
			}
			if !yield(Event{Type: line.kind, Object: obj, Inside: line.kind == Deleted, More: true}, nil) {
				return nil, false, nil
			}
		}
	}
	return nil, false, nil
}

func (r *replay) decode(line replayed) (obj runtime.Object, err error) {
	if line.last == nil {
		obj, err = r.inf.Reader().Decode(line.entry)
	} else {
		var b []byte
		if b, err = r.inf.packer().Decompress(nil, line.last); err == nil {
			obj, err = r.inf.codec.Decode(b)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("object %q: %w", line.key, err)
	}
	return obj, nil
}
