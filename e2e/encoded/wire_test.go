package encoded_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/informctl/informctl/codec"
)

// message is the message of an object as the server sends it.
type message struct {
	key, rv string
	raw     []byte
}

func newMessage(raw []byte) (message, error) {
	m, ok := codec.ReadMetadata(raw)
	if !ok {
		return message{}, fmt.Errorf("a message of %d bytes without metadata", len(raw))
	}
	return message{fmt.Sprintf("%s/%s", m.Namespace, m.Name), string(m.RV), raw}, nil
}

// open returns the message in an envelope.
func open(envelope []byte) ([]byte, error) {
	encoded, ok := bytes.CutPrefix(envelope, []byte("k8s\x00"))
	if !ok {
		return nil, fmt.Errorf("%d bytes without the prefix of protobuf", len(envelope))
	}
	var u runtime.Unknown
	err := u.Unmarshal(encoded)
	return u.Raw, err
}

// list returns the objects of a list by key.
func (w *world) list(t *testing.T, r resource, query string) map[string]message {
	t.Helper()
	body := w.get(t, r, query)
	defer body.Close()
	b, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	list, err := open(b)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]message{}
	for len(list) > 0 {
		number, kind, n := protowire.ConsumeTag(list)
		value, size := protowire.ConsumeBytes(list[max(n, 0):])
		if n < 0 || size < 0 || kind != protowire.BytesType {
			t.Fatalf("%s: the list is malformed", r.path())
		}
		if list = list[n+size:]; number != 2 { // the items
			continue
		}
		m, err := newMessage(value)
		if err != nil {
			t.Fatal(err)
		}
		out[m.key] = m
	}
	return out
}

// events is a watch.
type events struct {
	t    *testing.T
	body io.ReadCloser
}

func (w *world) watch(t *testing.T, r resource, query string) events {
	t.Helper()
	body := w.get(t, r, "?watch=true&allowWatchBookmarks=true&"+query)
	t.Cleanup(func() { body.Close() })
	return events{t, body}
}

// next returns the next event, which may be a bookmark.
func (e events) next() (watch.EventType, message) {
	e.t.Helper()
	var size [4]byte
	if _, err := io.ReadFull(e.body, size[:]); err != nil {
		e.t.Fatal(err)
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(e.body, frame); err != nil {
		e.t.Fatal(err)
	}
	var event metav1.WatchEvent
	if err := event.Unmarshal(frame); err != nil {
		e.t.Fatal(err)
	}
	raw, err := open(event.Object.Raw)
	if err != nil {
		e.t.Fatal(err)
	}
	m, err := newMessage(raw)
	if err != nil {
		e.t.Fatal(err)
	}
	return watch.EventType(event.Type), m
}

// of returns the next event of an object.
func (e events) of(key string) (watch.EventType, message) {
	e.t.Helper()
	for {
		if kind, m := e.next(); m.key == key {
			return kind, m
		}
	}
}
