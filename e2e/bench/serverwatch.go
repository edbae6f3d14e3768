package main

import (
	"bufio"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// bookmarkEvery and bookmarkBefore are the values of the API server: it sends a
	// bookmark every minute and one that long before the end of a watch.
	bookmarkEvery  = time.Minute
	bookmarkBefore = 2 * time.Second
	// defaultTimeout is the timeout of a watch that sets none.
	defaultTimeout = 30 * time.Minute
	// eventChunk is the number of events that are written before other requests may
	// change objects.
	eventChunk = 256
)

// watcher is one open watch.
type watcher struct {
	server    *server
	out       *bufio.Writer
	flush     func() error
	frame     []byte
	bookmarks bool
	start     uint64 // bookmarks have higher resource versions
	sent      uint64 // changes up to this resource version have been sent
	lost      int
}

// watch streams events until the timeout, until the history is lost or until the client
// closes the connection.
func (s *server) watch(response http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	rv, _ := strconv.ParseUint(query.Get("resourceVersion"), 10, 64) // 0 if missing
	w := &watcher{
		server: s, out: bufio.NewWriterSize(response, 1<<16), bookmarks: query.Get("allowWatchBookmarks") == "true",
		start: rv, sent: rv,
	}
	w.flush = func() error {
		if err := w.out.Flush(); err != nil {
			return err
		}
		return http.NewResponseController(response).Flush()
	}
	timeout := defaultTimeout
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil {
		timeout = time.Duration(seconds) * time.Second
	}
	contentType := s.contentType()
	if s.kind.isProtobuf() {
		contentType += ";stream=watch"
	}
	response.Header().Set("Content-Type", contentType)
	err := w.flush()
	if err == nil {
		err = w.begin(query.Get("sendInitialEvents") == "true")
	}
	if err == nil {
		err = w.follow(r, timeout)
	}
	_, _ = err, w.flush() // fails only if the client has gone
	return nil
}

// begin sends the current objects if the request asks for them.
func (w *watcher) begin(stream bool) error {
	s := w.server
	s.mu.Lock()
	w.lost = s.lost
	if !stream && w.sent > 0 {
		if w.sent < s.oldest {
			w.lost = -1
		}
		s.mu.Unlock()
		return nil
	}
	items, now := slices.Clone(s.items), s.now
	s.mu.Unlock()
	w.start, w.sent = now, now
	for _, it := range items {
		if err := w.send(watch.Added, it.data); err != nil {
			return err
		}
	}
	if stream && w.bookmarks {
		return w.bookmark(now, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return nil
}

func (w *watcher) follow(r *http.Request, timeout time.Duration) error {
	opened := time.Now()
	end := time.NewTimer(timeout)
	defer end.Stop()
	mark := time.NewTimer(untilMark(opened, timeout))
	defer mark.Stop()
	for {
		entries, changed, lost := w.pending()
		if lost {
			return w.expired()
		}
		for _, e := range entries {
			if err := w.send(watch.Modified, e.item.data); err != nil {
				return err
			}
			w.sent = e.rv
		}
		if len(entries) > 0 {
			continue
		}
		if err := w.flush(); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-mark.C:
			if err := w.dueBookmark(); err != nil {
				return err
			}
			mark.Reset(untilMark(opened, timeout))
		case <-end.C:
			return nil
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
}

func untilMark(opened time.Time, timeout time.Duration) time.Duration {
	last := timeout - bookmarkBefore - time.Since(opened)
	if last <= 0 {
		return bookmarkEvery
	}
	return min(last, bookmarkEvery)
}

// pending returns the next changes, and a channel that is closed at the next change.
func (w *watcher) pending() (entries []entry, changed <-chan struct{}, lost bool) {
	s := w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.lost != s.lost {
		return nil, nil, true
	}
	i, _ := slices.BinarySearchFunc(s.log, w.sent+1, func(e entry, rv uint64) int { return int(int64(e.rv) - int64(rv)) })
	return s.log[i:min(len(s.log), i+eventChunk)], s.changed, false
}

func (w *watcher) dueBookmark() error {
	w.server.mu.Lock()
	now := w.server.now
	w.server.mu.Unlock()
	if !w.bookmarks || now <= w.start {
		return nil
	}
	if err := w.bookmark(now, nil); err != nil {
		return err
	}
	return w.flush()
}

func (w *watcher) bookmark(rv uint64, annotations map[string]string) error {
	obj := w.server.kind.example()
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	accessor.SetResourceVersion(strconv.FormatUint(rv, 10))
	accessor.SetAnnotations(annotations)
	return w.sendObject(watch.Bookmark, obj)
}

// expired sends an event that reports lost history on an accepted watch.
func (w *watcher) expired() error {
	status := errors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", w.sent)).Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return w.sendObject(watch.Error, &status)
}

func (w *watcher) sendObject(event watch.EventType, obj kruntime.Object) error {
	data, err := w.server.kind.bare(obj)
	if err != nil {
		return err
	}
	return w.send(event, data)
}

func (w *watcher) send(event watch.EventType, data []byte) error {
	w.frame = w.server.kind.appendEvent(w.frame[:0], string(event), data)
	_, err := w.out.Write(w.frame)
	return err
}
