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
	// extJSON holds a value as JSON text, byte for byte as the value's own MarshalJSON gave it.
	extJSON = 1
	// extEmpty, without content, is an empty slice or map under omitempty: there for the Go type, absent in JSON.
	extEmpty = 2
	// extNil is a nil with a type: its content is one of the nil kinds below.
	extNil = 3
)

const (
	nilMap     = 'm' // map[string]any(nil) in an any
	nilSlice   = 's' // []any(nil) in an any
	nilPointee = 'p' // a pointer to something nil
)

// maxDepth bounds nesting in both directions, as encoding/json does when it reads.
const maxDepth = 10000

var (
	errDepth     = errors.New("nested too deeply")
	errMalformed = errors.New("malformed msgpack")
)

// writer is where one Encode writes to. Not safe for concurrent use.
type writer struct {
	*msgpack.Encoder
	buf   bytes.Buffer
	depth int
}

// maxPooled keeps one huge object from pinning its buffer for good.
const maxPooled = 1 << 20

var writers = sync.Pool{New: func() any {
	w := &writer{}
	w.Encoder = msgpack.NewEncoder(&w.buf)
	return w
}}

// write returns what f writes.
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

// json writes a value whose JSON form is text: plain strings, int64 and booleans as those of msgpack, from which
// exactly the same text can be made again, everything else as the text.
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

// plain reports whether s is its own JSON form but for the quotes.
func plain(s []byte) bool {
	for _, c := range s {
		if c < ' ' || c == '"' || c == '\\' {
			return false
		}
	}
	return utf8.Valid(s)
}

// reader is where one Decode reads from. Not safe for concurrent use. What it returns without a copy says so.
type reader struct {
	*msgpack.Decoder
	data  []byte
	src   *bytes.Reader
	depth int
}

// read lets f read data, all of it.
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

// rest is what is not read yet, without a copy.
func (r *reader) rest() []byte { return r.data[len(r.data)-r.src.Len():] }

// take reads n bytes, without a copy.
func (r *reader) take(n int) ([]byte, error) {
	b := r.rest()
	if n < 0 || n > len(b) {
		return nil, errMalformed
	}
	_, err := r.src.Seek(int64(n), io.SeekCurrent)
	return b[:n], err
}

// bytes reads a string or binary, without a copy.
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

// size checks the length of an array or map: it cannot have more elements than bytes are left. A nil has -1.
func (r *reader) size(n int, err error) (int, error) {
	if err != nil || n < -1 || n > r.src.Len() {
		return 0, errMalformed
	}
	return n, nil
}

func (r *reader) arrayLen() (int, error) { return r.size(r.DecodeArrayLen()) }

func (r *reader) mapLen() (int, error) {
	if c, err := r.PeekCode(); err != nil || msgpcode.IsExt(c) { // DecodeMapLen would jump over an extension
		return 0, errMalformed
	}
	return r.size(r.DecodeMapLen())
}

// null reads a nil if there is one.
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

// ext reads an extension, its content without a copy.
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

// json reads what writer.json wrote and returns the same text, in memory of its own.
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
