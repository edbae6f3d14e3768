package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/postgres/internal/raw"
)

// pageRows and pageBytes bound what a watch reads at once.
var pageRows, pageBytes = 500, 8 << 20

// fewRows is how many rows a watch reads at once that has read all there was. PostgreSQL
// needs a quarter of the time for it, which is mostly that to plan the statement, and
// each watch asks after each commit.
var fewRows = 50

// lagPatience is how long a watch waits for a row that it has read and that is not there
// any more, while the log ends before it.
var lagPatience = 10 * time.Second

// WatchWithContext implements cache.WatcherWithContext. A watch from a resource version
// that the database does not have yet is accepted, and silent until it has, unless the
// informer is known to have it: then it is refused with a 504. An informer goes on
// without a list, also client-go's, where a watch is refused with a 503 or 504, or ends
// with a 429: the database could not be read, or has nothing new for too long.
func (l *ListerWatcher) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	direct, switched := l.source()
	if direct {
		w, err := cache.ToWatcherWithContext(l.opts.Upstream).WatchWithContext(ctx, opts)
		if err != nil {
			return nil, err
		}
		return l.endWith(w, switched), nil
	}
	if err := checkSelectors(opts); err != nil {
		return nil, err
	}
	from, ok := parseMin(opts.ResourceVersion)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("resource version %q is no number", opts.ResourceVersion))
	}
	isList := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	known := l.known(from)
	s, err := l.read(ctx, from, known.anchor)
	switch {
	case err != nil && !isList && from > 0:
		return nil, l.refuse(ctx, err)
	case err != nil:
		return nil, err
	}
	l.setRefuses(false)
	w := &watcher{
		l: l, id: s.id, since: s.since, bookmarks: opts.AllowWatchBookmarks, out: make(chan watch.Event), from: from,
		behind: true, endsInitial: isList,
	}
	switch {
	case isList && from > s.last.rv:
		return nil, tooLarge(from, s.last.rv)
	case isList || from == 0:
		w.pos, w.initial = s.last, true
		if from == 0 {
			w.newest = &s.newest
		}
	case s.known:
		w.pos, w.newest = known.anchor, known.newest
	case known.isLost(s):
		return nil, expired(from)
	case from > s.last.rv && l.isOfFormer(from):
		return nil, expired(from)
	case from > s.last.rv:
		w.pos, w.skipping = s.last, true
	case from <= s.above || s.place.seq == 0:
		return nil, expired(from)
	default:
		w.pos, w.skipping = s.place, s.place.rv < from
	}
	if known.seq != 0 && !s.known && !w.initial {
		w.newest = known.newest
		l.forget()
	}
	timeout := time.Hour
	if opts.TimeoutSeconds != nil && *opts.TimeoutSeconds > 0 {
		timeout = time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	ctx, w.stop = context.WithTimeout(ctx, timeout)
	w.waiter = l.db.hub.join(w.id)
	l.db.hub.parts.Go(func() { w.run(ctx, switched) })
	return w, nil
}

// endWith ends a watch of the API server when a channel is closed.
func (l *ListerWatcher) endWith(w watch.Interface, switched <-chan struct{}) watch.Interface {
	out := &switchable{Interface: w, out: make(chan watch.Event), done: make(chan struct{})}
	go func() { // ends with w or by Stop
		defer close(out.out)
		defer w.Stop()
		for {
			select {
			case e, ok := <-w.ResultChan():
				if !ok {
					return
				}
				if m, err := meta.Accessor(e.Object); err == nil {
					l.reached(m.GetResourceVersion())
				}
				select {
				case out.out <- e:
				case <-switched:
					return
				case <-out.done:
					return
				}
			case <-switched:
				return
			case <-out.done:
				return
			}
		}
	}()
	return out
}

// watcher is an open watch.
//
//	initial    skipping   it sends
//	yes        no         the objects, then the rows after pos
//	no         yes        no rows up to the resource version from
//	no         no         the rows after pos
type watcher struct {
	l           *ListerWatcher
	id          int64
	since       int64   // the last break of history at its start; the next one ends it
	pos         anchor  // the last row that was read
	newest      *change // the last change up to pos; nil if it is not known
	from        int64
	initial     bool
	behind      bool // there may be more than fewRows rows after pos
	endsInitial bool // a bookmark says where the initial events end
	skipping    bool
	bookmarks   bool
	out         chan watch.Event
	stop        context.CancelFunc
	waiter      *waiter
}

// Stop implements watch.Interface.
func (w *watcher) Stop() { w.stop() }

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.out }

func (w *watcher) run(ctx context.Context, switched <-chan struct{}) {
	defer close(w.out)
	defer w.l.db.hub.leave(w.id, w.waiter)
	defer w.stop()
	stop := context.AfterFunc(w.l.db.hub.ctx, w.stop)
	defer stop()
	// It ends also while its events wait for handlers.
	w.l.db.hub.parts.Go(func() {
		select {
		case <-switched:
			w.stop()
		case <-ctx.Done():
		}
	})
	err := resumable(w.follow(ctx))
	if err == nil || isOver(ctx) {
		return
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewServiceUnavailable(err.Error())
	}
	st := status.Status()
	w.send(ctx, watch.Error, &st)
}

func (w *watcher) send(ctx context.Context, t watch.EventType, obj runtime.Object) bool {
	select {
	case w.out <- watch.Event{Type: t, Object: obj}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (w *watcher) follow(ctx context.Context) error {
	if w.initial {
		if err := w.sendObjects(ctx); err != nil {
			return err
		}
	}
	check := time.NewTicker(max(time.Millisecond, min(w.l.opts.MaxStale/3, time.Minute)))
	defer check.Stop()
	for !isOver(ctx) {
		n, err := w.readRows(ctx)
		if err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		if w.initial {
			w.initial = false
			if w.endsInitial && !w.sendBookmark(ctx, true) {
				return nil
			}
		}
		w.l.db.hub.read(w.waiter, w.pos)
		select {
		case <-ctx.Done():
		case <-w.waiter.wake:
		case <-check.C:
			// A feed that is not written any more has no rows that say so.
			if _, err := w.l.fresh(ctx, 0, anchor{}); err != nil {
				return err
			}
		}
		w.l.db.hub.read(w.waiter, anchor{})
	}
	return nil
}

// sendObjects sends the objects in pages, each of one statement that proves that the log
// still has the row at pos: all pages are of one history, at or after pos. What has
// changed since follows.
func (w *watcher) sendObjects(ctx context.Context) error {
	key := []byte{}
	for {
		rows, err := w.l.db.pool.Query(ctx, w.l.db.sql(`SELECT a.there, o.key, o.form, o.data
			FROM (SELECT EXISTS (SELECT FROM informctl.change WHERE scope = $1 AND seq = $2 AND tx = $3) AS there) a
			LEFT JOIN LATERAL (
				SELECT t.key, t.form, t.data, sum(octet_length(t.data)) OVER (ORDER BY t.key) - octet_length(t.data) AS before
				FROM (SELECT key, form, data FROM informctl.object WHERE scope = $1 AND key > $4 ORDER BY key LIMIT $5) t
			) o ON o.before < $6 ORDER BY o.key`), w.id, w.pos.seq, w.pos.tx, key, pageRows, pageBytes)
		if err != nil {
			return w.l.unavailable(ctx, "list", err)
		}
		var there bool
		var last, data []byte
		var form *int16
		var page []runtime.Object
		_, err = pgx.ForEachRow(rows, []any{&there, &last, &form, &data}, func() error {
			if form == nil {
				return nil
			}
			obj, err := w.l.decoder.decode(raw.Form(*form), data)
			if err != nil {
				return apierrors.NewInternalError(err)
			}
			page, key = append(page, obj), append([]byte{}, last...)
			return nil
		})
		switch {
		case apierrors.IsInternalError(err):
			return err
		case err != nil:
			return w.l.unavailable(ctx, "list", err)
		case !there:
			return errGone
		case len(page) == 0:
			return nil
		}
		for _, obj := range page {
			if !w.send(ctx, watch.Added, obj) {
				return nil
			}
		}
	}
}

// logRow is a row as a watch reads it.
type logRow struct {
	anchor
	kind kind
	key  []byte
	form *int16
	data []byte
	more bool // a deletion that others of its resource version follow, or may follow
}

// readRows sends a page of the rows after pos and returns how many it has read. The row
// at pos is read, too: if it is not there, the database has another history, or an older
// state.
func (w *watcher) readRows(ctx context.Context) (n int, err error) {
	var items []logRow
	var above, last int64
	if !w.behind && !w.skipping {
		if items, err = w.few(ctx); err != nil {
			return 0, err
		}
	}
	for began := time.Now(); !w.isNext(items); {
		if items, above, last, err = w.page(ctx); err != nil {
			return 0, err
		}
		if w.isNext(items) {
			break
		}
		if last >= w.pos.seq || time.Since(began) > lagPatience {
			return 0, errGone
		}
		if !pause(ctx, w.l.db.opts.Poll) {
			return 0, nil
		}
	}
	if w.skipping && w.from <= above {
		return 0, expired(w.from)
	}
	w.behind = len(items) > fewRows || sizeOf(items) >= pageBytes
	for i, it := range items[1:] {
		rest := items[i+2:]
		// A commit ends with a mark: others may follow a deletion that ends a page.
		it.more = it.kind == deleted && (len(rest) == 0 || rest[0].kind == deleted && rest[0].rv == it.rv)
		if it.seq != w.pos.seq+1 || it.kind == broken {
			return 0, expired(w.pos.rv)
		}
		if !w.sendRow(ctx, &it) {
			return 0, nil
		}
		w.pos = it.anchor
		n++
	}
	return n, nil
}

// isNext reports whether rows begin with the one at pos, as those that follow it do.
func (w *watcher) isNext(items []logRow) bool {
	return len(items) > 0 && items[0].seq == w.pos.seq && items[0].tx == w.pos.tx
}

// sizeOf returns the bytes of the rows after the first one, which is the one at pos.
func sizeOf(items []logRow) (size int) {
	for _, it := range items[min(1, len(items)):] {
		size += len(it.data)
	}
	return size
}

// few reads the row at pos and those after it: fewRows and pageBytes at most.
func (w *watcher) few(ctx context.Context) (items []logRow, err error) {
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, 2*deadline)
	defer cancel()
	rows, err := w.l.db.pool.Query(ctx, w.l.db.sql("SELECT seq, rv, tx, kind, key, form, data FROM informctl.change WHERE scope = $1 AND seq >= $2 ORDER BY seq LIMIT $3"),
		w.id, w.pos.seq, fewRows+1)
	if err != nil {
		return nil, w.l.unavailable(outer, "read the log", err)
	}
	for err == nil && sizeOf(items) < pageBytes && rows.Next() {
		var it logRow
		err = rows.Scan(&it.seq, &it.rv, &it.tx, &it.kind, &it.key, &it.form, &it.data)
		items = append(items, it)
	}
	rows.Close()
	if err = errors.Join(err, rows.Err()); err != nil {
		return nil, w.l.unavailable(outer, "read the log", err)
	}
	return items, nil
}

func (w *watcher) page(ctx context.Context) (items []logRow, above, last int64, err error) {
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, 2*deadline)
	defer cancel()
	// The sizes of the rows are read without the rows.
	rows, err := w.l.db.pool.Query(ctx, w.l.db.sql(`SELECT s.above, coalesce((SELECT seq FROM informctl.change WHERE scope = s.id ORDER BY seq DESC LIMIT 1), 0),
			coalesce(c.seq, 0), c.rv, c.tx, c.kind, c.key, c.form, c.data
		FROM informctl.scope s LEFT JOIN LATERAL (
			SELECT t.seq, t.rv, t.tx, t.kind, t.key, t.form, t.data, t.bytes - first_value(t.bytes) OVER (ORDER BY t.seq) - coalesce(octet_length(t.data), 0) AS before
			FROM (SELECT * FROM informctl.change WHERE scope = s.id AND seq >= $2 ORDER BY seq LIMIT $3) t
		) c ON c.before < $4 WHERE s.id = $1 ORDER BY c.seq`), w.id, w.pos.seq, pageRows+1, pageBytes)
	if err != nil {
		return nil, 0, 0, w.l.unavailable(outer, "read the log", err)
	}
	var rv, tx *int64
	var k *string
	var it logRow
	_, err = pgx.ForEachRow(rows, []any{&above, &last, &it.seq, &rv, &tx, &k, &it.key, &it.form, &it.data}, func() error {
		if k != nil {
			it.rv, it.tx, it.kind = *rv, *tx, kind(*k)
			items = append(items, it)
		}
		it.key, it.form, it.data = nil, nil, nil
		return nil
	})
	if err != nil {
		return nil, 0, 0, w.l.unavailable(outer, "read the log", err)
	}
	return items, above, last, nil
}

// sendRow sends a row, unless the caller has it.
func (w *watcher) sendRow(ctx context.Context, it *logRow) bool {
	if it.key != nil {
		w.newest = &change{it.rv, string(it.key)}
	}
	if w.skipping {
		w.skipping = it.rv < w.from || it.rv == w.from && it.kind != mark
		if it.rv <= w.from {
			if !w.skipping {
				w.l.delivered(receipt{it.anchor, w.newest, w.since})
			}
			return true
		}
	}
	t := watch.Modified
	switch it.kind {
	case mark:
		w.pos = it.anchor
		return w.sendMark(ctx)
	case added, listedNew:
		t = watch.Added
	case deleted, gone:
		t = watch.Deleted
	}
	obj, err := w.object(it)
	if err != nil {
		st := apierrors.NewInternalError(err).Status()
		w.send(ctx, watch.Error, &st)
		return false
	}
	if !w.send(ctx, t, obj) {
		return false
	}
	if !it.more {
		w.l.delivered(receipt{it.anchor, w.newest, w.since})
	}
	return true
}

func (w *watcher) object(it *logRow) (runtime.Object, error) {
	if it.form == nil {
		return nil, fmt.Errorf("a row of kind %s has no object", it.kind)
	}
	obj, err := w.l.decoder.decode(raw.Form(*it.form), it.data)
	if err != nil {
		return nil, err
	}
	if it.kind == gone || it.more {
		m, err := meta.Accessor(obj)
		if err != nil {
			return nil, err
		}
		rv := it.rv
		if it.more {
			rv-- // who has only this one of several deletions has to receive all again
		}
		m.SetResourceVersion(strconv.FormatInt(rv, 10))
	}
	return obj, nil
}

// sendMark sends the mark at pos as a bookmark.
func (w *watcher) sendMark(ctx context.Context) bool {
	if w.initial {
		return true
	}
	if w.bookmarks && !w.sendBookmark(ctx, false) {
		return false
	}
	w.l.delivered(receipt{w.pos, w.newest, w.since})
	return true
}

func (w *watcher) sendBookmark(ctx context.Context, endsInitial bool) bool {
	obj := w.l.decoder.empty()
	m, err := meta.Accessor(obj)
	if err != nil {
		return false
	}
	m.SetResourceVersion(strconv.FormatInt(w.pos.rv, 10))
	if endsInitial {
		m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	if !w.send(ctx, watch.Bookmark, obj) {
		return false
	}
	if endsInitial {
		w.l.listed(receipt{w.pos, w.newest, w.since})
	} else {
		w.l.delivered(receipt{w.pos, w.newest, w.since})
	}
	return true
}

// switchable is a watch of the API server that Direct ends.
type switchable struct {
	watch.Interface
	out  chan watch.Event
	done chan struct{}
	once sync.Once
}

// Stop implements watch.Interface.
func (s *switchable) Stop() { s.once.Do(func() { close(s.done) }) }

// ResultChan implements watch.Interface.
func (s *switchable) ResultChan() <-chan watch.Event { return s.out }
