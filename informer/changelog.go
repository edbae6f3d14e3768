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
	"github.com/informctl/informctl/store"
)

const (
	// logEntries is how many changes an informer remembers that answers for them,
	// and logBytes how many bytes of their keys and of what was deleted.
	logEntries = 8192
	logBytes   = 8 << 20
	// replayChunk is how many of them are looked at under the informer's lock.
	replayChunk = 64
)

// changeLog is what came last, in the watch's order, for a client that knows the
// state at a resource version and wants what came after it. It takes 2 MiB of memory
// and logBytes at most. It is nil before KeepChanges.
//
// It has no objects but those that were deleted. For the others the present one is
// sent at the place of its last change, which is the same state: so whoever has got
// all lines up to a resource version knows at least the state at that one.
//
// What a list brings has no place among the watch's changes, so the log begins anew
// behind one that brought anything. It begins at the list's resource version, unless a
// client may know that one and not what was brought: since it followed meanwhile, or
// in a list before that did not end, and was told of the newest object and not of the
// others, or since the informer had got there before. Then it begins behind the next
// change or bookmark. Where history was rewound it begins behind the highest resource
// version of the history that was.
//
// Its fields are protected by Informer.mu.
type changeLog struct {
	from    string // the log has all that came after it; "" where it has nothing
	upTo    string // the latest resource version that is known; "" is none
	beyond  string // from has to be later; "" is no bound
	listing bool   // a list is compared or applied
	told    bool   // a client was told of a part of it, or of one that did not end

	entries []logEntry
	first   uint64            // the number of entries[0]
	newest  map[string]uint64 // by key the number of its last entry
	bytes   int
	zstd    *codec.Zstd
}

// logEntry is one change.
type logEntry struct {
	kind kind // added, updated, deleted
	key  string
	rv   string
	last []byte // what was deleted, encoded and compressed
}

func (e logEntry) size() int { return len(e.key) + len(e.last) }

// newPacker returns what compresses the deleted objects of logs.
func newPacker() *codec.Zstd {
	z, err := codec.NewZstd(nil)
	if err != nil {
		panic(err) // it is of a dictionary
	}
	return z
}

// KeepChanges makes informers remember their last changes from now on, for consumers whose
// Follow begins at a resource version: each 8,192 changes, fewer where many large objects
// were deleted, in 10 MiB at most. Calling it again does nothing.
func KeepChanges(informers ...*Informer) {
	packer := newPacker()
	for _, inf := range informers {
		inf.keepLog(packer)
	}
}

// keepLog is KeepChanges for one informer; z compresses what its log keeps.
func (inf *Informer) keepLog(z *codec.Zstd) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if inf.log == nil {
		inf.log = &changeLog{newest: map[string]uint64{}, zstd: z}
		inf.beginLogLocked()
	}
}

// beginLogLocked begins the log with what the store holds.
func (inf *Informer) beginLogLocked() {
	if inf.log != nil && inf.opened && len(inf.rejected) == 0 && inf.foreign == "" {
		inf.log.complete(inf.store.Checkpoint().RV)
	}
}

// packer is nil where there is no log.
func (inf *Informer) packer() *codec.Zstd {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if inf.log == nil {
		return nil
	}
	return inf.log.zstd
}

// logged fills in what the log needs of a change that a watch brought. It must be the
// only one who uses the object.
func (inf *Informer) logged(c *change, z *codec.Zstd, obj runtime.Object) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return
	}
	c.rv = accessor.GetResourceVersion()
	if c.last == nil {
		return
	}
	if b, err := inf.codec.Encode(obj); err == nil {
		c.packed = z.Compress(nil, b)
	}
}

// isLater is false for what is no resource version, too.
func isLater(rv, than string) bool {
	order, err := resourceversion.CompareResourceVersion(rv, than)
	return err == nil && order > 0
}

// complete notes that everything up to rv was applied. Of a list listed does.
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

// list notes that a list begins.
func (l *changeLog) list() { l.listing = true }

// listedLocked notes that a list is applied.
func (inf *Informer) listedLocked(rv string) {
	if inf.log == nil {
		return
	}
	for h := range inf.handlers {
		if _, ok := h.handler.(*feed); ok && !inf.ready {
			inf.log.told = true // its cursor tells it of the first list
		}
	}
	inf.log.listed(rv)
}

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

// forget drops all. Its clients notice that a number is left out.
func (l *changeLog) forget() {
	l.from, l.first, l.entries, l.bytes = "", l.end()+1, nil, 0
	clear(l.newest)
}

func (l *changeLog) end() uint64 { return l.first + uint64(len(l.entries)) }

// note adds a change; handlers are told of it under the same lock.
func (l *changeLog) note(k kind, c change) {
	last := l.from
	if n := len(l.entries); n > 0 {
		last = l.entries[n-1].rv
	}
	order, err := resourceversion.CompareResourceVersion(c.rv, last)
	if err != nil || order < 0 || k == vanished || k == deleted && c.packed == nil {
		l.forget() // it began to, or this has no place in it
		return
	}
	e := logEntry{kind: k, key: c.key, rv: c.rv}
	if k == deleted {
		e.last = c.packed
	}
	l.newest[e.key] = l.end()
	l.entries = append(l.entries, e)
	for l.bytes += e.size(); len(l.entries) > logEntries || l.bytes > logBytes; {
		l.drop()
	}
}

// noteReplayed adds a change that an earlier process has stored and that a client which
// knows the state at the stored resource version does not know.
func (l *changeLog) noteReplayed(c change) {
	switch {
	case l == nil:
	case c.is.Key == "":
		l.note(deleted, c)
	case c.created:
		l.note(added, c)
	default:
		l.note(updated, c)
	}
}

// drop forgets the oldest change.
func (l *changeLog) drop() {
	e := l.entries[0]
	if l.newest[e.key] == l.first {
		delete(l.newest, e.key)
	}
	l.entries[0] = logEntry{} // the array may stay for a while
	l.entries, l.first, l.bytes, l.from = l.entries[1:], l.first+1, l.bytes-e.size(), e.rv
}

// errOvertaken indicates a consumer that reads the log more slowly than it moves on.
var errOvertaken = errors.New("what the client was to be told next is not known any more")

// logAfter returns the number of the first change after a resource version.
func (inf *Informer) logAfter(rv string) (n uint64, err error) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	l := inf.log
	switch {
	case inf.ended:
		return 0, ErrStopped
	case l == nil:
		return 0, atPlace(ErrExpired, "resource version %s is not remembered: KeepChanges was not called", rv)
	case !inf.opened:
		return 0, ErrNotOpened
	case l.from == "":
		return 0, atPlace(ErrExpired, "resource version %s has expired: all objects were listed anew, and changes are known from the next one on", rv)
	case isLater(l.from, rv):
		return 0, atPlace(ErrExpired, "resource version %s has expired: changes are known from resource version %s on", rv, l.from)
	case isLater(rv, l.upTo):
		return 0, atPlace(ErrAhead, "resource version %s is ahead of the informer, which knows resource version %s", rv, l.upTo)
	}
	i := sort.Search(len(l.entries), func(i int) bool { return isLater(l.entries[i].rv, rv) })
	return l.first + uint64(i), nil
}

// isListed reports whether a client that is told of that resource version may lack what
// came before it: a list tells in the order of keys. It may be true of what a watch
// brought, too.
func (inf *Informer) isListed(rv string) bool {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	l := inf.log
	return l != nil && (l.from == "" || l.listing || l.beyond != "" && !isLater(rv, l.beyond))
}

// replay walks the log for one client.
type replay struct {
	inf  *Informer
	feed *feed
	next uint64 // the number of the change
	// fresh are the objects that were added and not told of, since they change later.
	fresh map[string]struct{}
}

// replayed is one line, whose object is not decoded.
type replayed struct {
	kind  EventType
	key   string
	entry store.Entry
	last  []byte // of what was deleted, instead
}

// take returns what comes next. Where nothing does, the feed becomes a handler, which
// is told of all changes from then on.
func (r *replay) take() (lines []replayed, h *handler, err error) {
	inf := r.inf
	inf.mu.Lock()
	defer inf.mu.Unlock()
	l := inf.log
	if r.next < l.first {
		return nil, nil, errOvertaken
	}
	if r.next == l.end() {
		h, err = inf.addFromNowLocked(r.feed)
		return nil, h, err
	}
	entries := l.entries[r.next-l.first:]
	for _, e := range entries[:min(len(entries), replayChunk)] {
		_, fresh := r.fresh[e.key]
		isLast := l.newest[e.key] == r.next
		r.next++
		switch {
		case e.kind == deleted && fresh: // never told of
		case e.kind == deleted:
			lines = append(lines, replayed{kind: Deleted, key: e.key, last: e.last})
		case !isLast:
			if e.kind == added {
				r.fresh[e.key] = struct{}{}
			}
			continue
		default:
			entry, ok, err := inf.store.Entry(e.key)
			if err == nil && !ok {
				err = errOvertaken
			}
			if err != nil {
				return nil, nil, err
			}
			kind := Modified
			if fresh || e.kind == added {
				kind = Added
			}
			lines = append(lines, replayed{kind: kind, key: e.key, entry: entry})
		}
		delete(r.fresh, e.key)
	}
	return lines, nil, nil
}

// yield yields what the log has, chunk by chunk, and returns the handler that goes on
// from there; goOn is false where the consumer has had enough.
func (r *replay) yield(ctx context.Context, yield func(Event, error) bool) (h *handler, goOn bool, err error) {
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
			if !yield(Event{Type: line.kind, Object: obj, More: true}, nil) {
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
