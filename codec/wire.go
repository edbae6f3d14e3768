package codec

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// The msgpack extensions of a record. They are part of the file format.
const (
	// extJSON contains a value as JSON text, byte for byte as its MarshalJSON returned
	// it.
	extJSON = 1
	// extEmpty has no content. It is an empty slice or map with omitempty: present for
	// the Go type, absent in JSON.
	extEmpty = 2
	// extNil is a typed nil. Its content is one of the nil kinds below.
	extNil = 3
	// extFields has no content. The value of a type with its own form follows it, encoded
	// by its fields.
	extFields = 4
)

const (
	nilMap     = 'm' // map[string]any(nil) in an any
	nilSlice   = 's' // []any(nil) in an any
	nilPointee = 'p' // a pointer to something nil
)

// maxDepth limits the nesting depth of encoding and decoding, like encoding/json's
// decoder.
const maxDepth = 10000

var (
	errDepth     = errors.New("nested too deeply")
	errMalformed = errors.New("malformed msgpack")
)

// writer is the output of one Encode. It is not safe for concurrent use.
type writer struct {
	*msgpack.Encoder
	buf   bytes.Buffer
	depth int
}

// maxPooled limits the size of a pooled buffer, so that one huge object does not keep its
// memory for ever.
const maxPooled = 1 << 20

var writers = sync.Pool{New: func() any {
	w := &writer{}
	w.Encoder = msgpack.NewEncoder(&w.buf)
	return w
}}

// write returns the bytes that f writes.
func write(f func(w *writer) error) ([]byte, error) {
	w := writers.Get().(*writer)
	w.buf.Reset()
	w.depth = 0
	if err := f(w); err != nil {
		return nil, err
	}
	data := bytes.Clone(w.buf.Bytes())
	if w.buf.Cap() <= maxPooled {
		writers.Put(w)
	}
	return data, nil
}

func (w *writer) enter() error {
	if w.depth++; w.depth > maxDepth {
		return errDepth
	}
	return nil
}

func (w *writer) leave() { w.depth-- }

func (w *writer) ext(id int8, content ...byte) error {
	if err := w.EncodeExtHeader(id, len(content)); err != nil {
		return err
	}
	_, err := w.buf.Write(content)
	return err
}

// json writes a value that has a JSON form. It writes plain strings, int64s and booleans
// as msgpack values if the same text can be restored from them, everything else as JSON
// text.
func (w *writer) json(text []byte) error {
	n := len(text)
	if n >= 2 && text[0] == '"' && text[n-1] == '"' && plain(text[1:n-1]) {
		return w.EncodeString(string(text[1 : n-1]))
	}
	if n > 0 && n <= 20 {
		s := string(text)
		if i, err := strconv.ParseInt(s, 10, 64); err == nil && strconv.FormatInt(i, 10) == s {
			return w.EncodeInt(i)
		}
		if s == "true" || s == "false" {
			return w.EncodeBool(s == "true")
		}
	}
	return w.ext(extJSON, text...)
}

// plain reports whether the JSON form of s is s in quotes.
func plain(s []byte) bool {
	for _, c := range s {
		if c < ' ' || c == '"' || c == '\\' {
			return false
		}
	}
	return utf8.Valid(s)
}

// reader is the input of one Decode. It is not safe for concurrent use. Methods that
// return data without copying it say so.
type reader struct {
	*msgpack.Decoder
	data  []byte
	src   *bytes.Reader
	depth int
}

// read calls f with a reader of data. f must read all of it.
func read(data []byte, f func(r *reader) error) error {
	r := &reader{data: data, src: bytes.NewReader(data)}
	r.Decoder = msgpack.NewDecoder(r.src)
	if err := f(r); err != nil {
		return err
	}
	if r.src.Len() > 0 {
		return errMalformed
	}
	return nil
}

func (r *reader) enter() error {
	if r.depth++; r.depth > maxDepth {
		return errDepth
	}
	return nil
}

func (r *reader) leave() { r.depth-- }

// rest returns the unread data, without a copy.
func (r *reader) rest() []byte { return r.data[len(r.data)-r.src.Len():] }

// take reads n bytes without copying them.
func (r *reader) take(n int) ([]byte, error) {
	b := r.rest()
	if n < 0 || n > len(b) {
		return nil, errMalformed
	}
	_, err := r.src.Seek(int64(n), io.SeekCurrent)
	return b[:n], err
}

// bytes reads a string or binary without copying it.
func (r *reader) bytes() ([]byte, error) {
	n, err := r.DecodeBytesLen()
	if err != nil {
		return nil, errMalformed
	}
	return r.take(n)
}

func (r *reader) string() (string, error) {
	b, err := r.bytes()
	return string(b), err
}

// size checks the length of an array or map: it cannot have more elements than there are
// bytes left. A nil has length -1.
func (r *reader) size(n int, err error) (int, error) {
	if err != nil || n < -1 || n > r.src.Len() {
		return 0, errMalformed
	}
	return n, nil
}

func (r *reader) arrayLen() (int, error) { return r.size(r.DecodeArrayLen()) }

func (r *reader) mapLen() (int, error) {
	// DecodeMapLen would skip an extension.
	if c, err := r.PeekCode(); err != nil || msgpcode.IsExt(c) {
		return 0, errMalformed
	}
	return r.size(r.DecodeMapLen())
}

// null reads a nil if it comes next.
func (r *reader) null() bool {
	if c, err := r.PeekCode(); err != nil || c != msgpcode.Nil {
		return false
	}
	return r.DecodeNil() == nil
}

func (r *reader) int() (int64, error) {
	switch c, err := r.PeekCode(); {
	case err != nil || c == msgpcode.Nil:
		return 0, errMalformed
	case c == msgpcode.Uint64:
		u, err := r.DecodeUint64()
		if err != nil || u > math.MaxInt64 {
			return 0, errMalformed
		}
		return int64(u), nil
	}
	return r.DecodeInt64()
}

func (r *reader) uint() (uint64, error) {
	if c, err := r.PeekCode(); err != nil || c == msgpcode.Nil {
		return 0, errMalformed
	}
	return r.DecodeUint64()
}

// ext reads an extension without copying its content.
func (r *reader) ext() (id int8, content []byte, err error) {
	id, n, err := r.DecodeExtHeader()
	if err != nil {
		return 0, nil, errMalformed
	}
	content, err = r.take(n)
	return id, content, err
}

// marker reads the extension id with exactly this content if it comes next.
func (r *reader) marker(id int8, content string) bool {
	b := r.rest()
	if len(b) < 2 || !msgpcode.IsExt(b[0]) {
		return false
	}
	at := *r.src
	if got, c, err := r.ext(); err == nil && got == id && string(c) == content {
		return true
	}
	*r.src = at
	return false
}

// json reads what writer.json wrote and returns the same text in new memory.
func (r *reader) json() ([]byte, error) {
	c, err := r.PeekCode()
	if err != nil {
		return nil, errMalformed
	}
	switch {
	case msgpcode.IsString(c):
		s, err := r.bytes()
		if err != nil || !plain(s) {
			return nil, errMalformed
		}
		text := make([]byte, 0, len(s)+2)
		return append(append(append(text, '"'), s...), '"'), nil
	case msgpcode.IsExt(c):
		id, text, err := r.ext()
		if err != nil || id != extJSON {
			return nil, errMalformed
		}
		return append(make([]byte, 0, len(text)), text...), nil
	case c == msgpcode.True || c == msgpcode.False:
		b, err := r.DecodeBool()
		return strconv.AppendBool(nil, b), err
	}
	i, err := r.int()
	return strconv.AppendInt(nil, i, 10), err
}
