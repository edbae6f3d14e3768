package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
)

// serving describes the objects that a server holds.
type serving struct {
	Kind    string
	Objects int
}

// served contains the total size of all objects.
type served struct {
	WireBytes int64 `json:"wireBytes"` // in the wire encoding
	JSONBytes int64 `json:"jsonBytes"` // as compact JSON
}

// listening is the message of a server when it listens.
type listening struct {
	URL string
	served
}

// server serves one collection.
type server struct {
	kind   kind
	origin []item

	mu      sync.Mutex // protects the fields below
	items   []item
	log     []entry
	now     uint64
	oldest  uint64        // the lowest resource version at which a watch may begin
	lost    int           // how often the history was lost
	next    int           // number of the next change
	changed chan struct{} // closed at the next change
	pages   map[uint64][]item
}

// entry is one change.
type entry struct {
	rv   uint64
	item item
}

// serve listens until standard input is closed.
func serve(ask serving) error {
	k, err := kindOf(ask.Kind)
	if err != nil {
		return err
	}
	c, err := k.collection(ask.Objects)
	if err != nil {
		return err
	}
	s := &server{kind: k, origin: c.items, changed: make(chan struct{})}
	s.reset(0)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	answer := listening{"http://" + listener.Addr().String(), served{JSONBytes: c.jsonBytes}}
	for _, it := range c.items {
		answer.WireBytes += int64(len(it.data))
	}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = listener.Close()
	}()
	err = (&http.Server{Handler: s.handler(), ReadHeaderTimeout: time.Minute}).Serve(listener)
	if err != nil && !strings.Contains(err.Error(), "closed") {
		return err
	}
	return nil
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/control/", s.control)
	prefix := "/api/v1/"
	if s.kind.gvr.Group != "" {
		prefix = "/apis/" + s.kind.gvr.Group + "/" + s.kind.gvr.Version + "/"
	}
	mux.HandleFunc(prefix+s.kind.gvr.Resource, func(w http.ResponseWriter, r *http.Request) {
		var err error
		if watch := r.URL.Query().Get("watch"); watch == "true" || watch == "1" {
			err = s.watch(w, r)
		} else {
			err = s.list(w, r)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	return mux
}

// list answers a list request with the current objects, in pages if the request has a
// limit. All pages have the resource version of the first one.
func (s *server) list(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	limit, _ := strconv.Atoi(query.Get("limit")) // a missing limit is 0
	items, from, rv, err := s.page(query.Get("continue"))
	if err != nil {
		return err
	}
	m := metav1.ListMeta{ResourceVersion: strconv.FormatUint(rv, 10)}
	to := len(items)
	if limit > 0 && from+limit < to {
		to = from + limit
		m.RemainingItemCount = new(int64(len(items) - to))
		m.Continue = fmt.Sprintf("%d.%d", rv, to)
		s.keepPages(rv, items)
	}
	buffered := bufio.NewWriterSize(w, 1<<16)
	w.Header().Set("Content-Type", s.contentType())
	if s.kind.isProtobuf() {
		err = s.writeProtobufList(buffered, m, items[from:to])
	} else {
		err = s.writeJSONList(buffered, m, items[from:to])
	}
	_, _ = err, buffered.Flush() // fails only if the client has gone
	return nil
}

func (s *server) contentType() string {
	if s.kind.isProtobuf() {
		return kruntime.ContentTypeProtobuf
	}
	return kruntime.ContentTypeJSON
}

func (s *server) page(token string) (items []item, from int, rv uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token == "" {
		return slices.Clone(s.items), 0, s.now, nil
	}
	if _, err := fmt.Sscanf(token, "%d.%d", &rv, &from); err != nil {
		return nil, 0, 0, fmt.Errorf("continue %q: %w", token, err)
	}
	items, ok := s.pages[rv]
	if !ok || from > len(items) {
		return nil, 0, 0, fmt.Errorf("continue %q is not known", token)
	}
	return items, from, rv, nil
}

func (s *server) keepPages(rv uint64, items []item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages[rv] = items
}

func (s *server) writeJSONList(w io.Writer, m metav1.ListMeta, items []item) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, `{"kind":"%sList","apiVersion":%q,"metadata":%s,"items":[`, s.kind.gvk.Kind, s.kind.gvk.GroupVersion(), text)
	for i, it := range items {
		if i > 0 {
			_, err = w.Write([]byte{','})
		}
		if err == nil {
			_, err = w.Write(it.data)
		}
		if err != nil {
			return err
		}
	}
	_, err = w.Write([]byte("]}"))
	return err
}

// writeProtobufList writes the envelope, a runtime.Unknown, that contains the list: field
// 1 is the metadata, and each object is a field 2.
func (s *server) writeProtobufList(w io.Writer, m metav1.ListMeta, items []item) error {
	head, err := m.Marshal()
	if err != nil {
		return err
	}
	head = append(binary.AppendUvarint([]byte{1<<3 | 2}, uint64(len(head))), head...)
	size := len(head)
	var field []byte
	prefix := func(it item) []byte {
		field = binary.AppendUvarint(append(field[:0], 2<<3|2), uint64(it.rawTo-it.rawAt))
		return field
	}
	for _, it := range items {
		size += len(prefix(it)) + it.rawTo - it.rawAt
	}
	version, listKind := s.kind.gvk.GroupVersion().String(), s.kind.gvk.Kind+"List"
	meta, err := (&kruntime.TypeMeta{APIVersion: version, Kind: listKind}).Marshal()
	if err != nil {
		return err
	}
	envelope := append(binary.AppendUvarint([]byte("k8s\x00\x0a"), uint64(len(meta))), meta...)
	envelope = binary.AppendUvarint(append(envelope, 2<<3|2), uint64(size))
	if _, err := w.Write(append(envelope, head...)); err != nil {
		return err
	}
	for _, it := range items {
		if _, err := w.Write(prefix(it)); err != nil {
			return err
		}
		if _, err := w.Write(it.data[it.rawAt:it.rawTo]); err != nil {
			return err
		}
	}
	return nil
}
