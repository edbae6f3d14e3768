package tap

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/informctl/informctl/codec"
)

// maxFrame is the largest event that is tapped. client-go refuses events of more than 16
// MiB, so that a marked one stays below that.
const maxFrame = 8 << 20

// stream is the body of a watch: events, each behind its length in four bytes. One
// goroutine at a time reads it.
type stream struct {
	marker
	body  io.Closer
	in    *bufio.Reader
	frame []byte    // as it came
	slim  []byte    // what client-go receives
	out   []byte    // the part of it that was not read yet
	rest  io.Reader // nil before the end of the tap: then the events that follow
}

func newStream(t *Tap, a *answer, body io.ReadCloser) *stream {
	return &stream{marker: marker{tap: t, answer: a}, body: body, in: bufio.NewReaderSize(body, 64<<10)}
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.tap.close(s.answer)
	return s.body.Close()
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	for len(s.out) == 0 {
		if s.rest != nil {
			return s.rest.Read(p)
		}
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.out)
	s.out = s.out[n:]
	return n, nil
}

// next reads the next event.
func (s *stream) next() error {
	var head [4]byte
	if n, err := io.ReadFull(s.in, head[:]); err != nil {
		return s.pass(err, head[:n])
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxFrame || s.tap.state.Load() != tapped {
		s.tap.decline(s.answer)
		return s.pass(nil, head[:])
	}
	if cap(s.frame) < int(size) {
		s.frame = make([]byte, size)
	}
	s.frame = s.frame[:size]
	if n, err := io.ReadFull(s.in, s.frame); err != nil {
		return s.pass(err, head[:], s.frame[:n])
	}
	if s.tapEvent() {
		return nil
	}
	s.out = append(append(s.slim[:0], head[:]...), s.frame...)
	s.slim = s.out
	return nil
}

// pass ends the tap of this answer: the reader receives what was read, and what follows.
func (s *stream) pass(err error, read ...[]byte) error {
	s.out = bytes.Join(read, nil)
	if s.rest = s.in; err != nil {
		s.rest = failing{err}
	}
	return nil
}

// failing is a reader of nothing but an error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, cutOff(f.err) }

// cutOff returns the error of a reader whose caller knows what it has expected.
func cutOff(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}

// tapEvent makes the event that client-go receives. It returns false for an event that
// stays as it is: a bookmark, which it notes, or an error. The tap ends with an event
// that it does not understand.
func (s *stream) tapEvent() bool {
	var kind string
	var object []byte
	for rest := s.frame; len(rest) > 0; {
		f, r, ok := cut(rest)
		if !ok {
			s.tap.decline(s.answer)
			return false
		}
		switch rest = r; f.number {
		case eventType:
			kind = string(f.value)
		case eventObject:
			object = f.value
		}
	}
	if kind == "ERROR" {
		return false
	}
	extension, rest, ok := cut(object)
	ok = ok && extension.number == extensionBytes && len(rest) == 0
	var item []byte
	if ok {
		item, ok = s.tap.open(extension.value, s.tap.kind)
	}
	if kind == "BOOKMARK" {
		if m, isRead := codec.ReadMetadata(item); ok && isRead {
			s.tap.addPoint(s.answer, string(m.RV))
		}
		return false
	}
	if ok {
		item, ok = s.mark(item, kind == string(watch.Deleted))
	}
	if !ok {
		s.tap.decline(s.answer)
		return false
	}
	envelope := s.tap.envelopeSize(s.tap.kind, len(item))
	b := append(s.slim[:0], 0, 0, 0, 0)
	b = appendField(b, eventType, kind)
	b = protowire.AppendTag(b, eventObject, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(sizeOf(envelope)))
	b = protowire.AppendTag(b, extensionBytes, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(envelope))
	b = s.tap.appendEnvelope(b, s.tap.kind, item)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	s.slim, s.out = b, b
	return true
}

// list is the body of a list, which client-go reads whole before it decodes it. One
// goroutine at a time reads it.
type list struct {
	tap    *Tap
	answer *answer
	body   io.ReadCloser
	// slim returns the list that client-go receives.
	slim func(t *Tap, a *answer, all []byte) ([]byte, bool)
	out  *bytes.Reader // nil before the first Read
}

// Close implements io.Closer.
func (l *list) Close() error { return l.body.Close() }

// Read implements io.Reader.
func (l *list) Read(p []byte) (int, error) {
	if l.out == nil {
		all, err := io.ReadAll(l.body)
		if err != nil {
			return 0, err
		}
		slim, ok := l.slim(l.tap, l.answer, all)
		if !ok {
			l.tap.move(declined, untapped, tapped)
			l.tap.drop(l.answer)
			slim = all
		}
		l.out = bytes.NewReader(slim)
	}
	return l.out.Read(p)
}

// protobufList returns the list that client-go receives.
func protobufList(t *Tap, a *answer, all []byte) ([]byte, bool) {
	kind := t.kind + "List"
	message, ok := t.open(all, kind)
	if !ok {
		return nil, false
	}
	w := marker{tap: t, answer: a}
	rv := ""
	slim := make([]byte, 0, len(message)/8)
	for len(message) > 0 {
		f, rest, ok := cut(message)
		if !ok {
			return nil, false
		}
		message = rest
		switch f.number {
		case listMetadata:
			rv = resourceVersionOf(f.value)
		case listItems:
			if f.value, ok = w.mark(f.value, false); !ok {
				return nil, false
			}
		}
		slim = appendField(slim, f.number, f.value)
	}
	t.addPoint(a, rv)
	return t.appendEnvelope(make([]byte, 0, len(slim)+128), kind, slim), true
}
