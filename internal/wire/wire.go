// Package wire is what informer's endpoint and informctl say to each other beside
// JSON: objects as they are stored, so that the one who asks decodes them.
//
// Writers and readers are for one goroutine.
package wire

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/informctl/informctl/store"
)

// ContentType is that of an answer of parts.
const ContentType = "application/vnd.msgpack"

// File is what a process says of the file that it keeps, as JSON.
type File struct {
	Path string `json:"path"`
	// Device and Inode tell whether the path is the same file for both.
	Device uint64       `json:"device"`
	Inode  uint64       `json:"inode"`
	Scopes []store.Info `json:"scopes"` // after the last commit
	// Memory are the scopes that an informer holds in memory, whatever the file has of
	// them.
	Memory []store.Info `json:"memory"`
}

// Failure is an error as it is sent, outside of parts as JSON.
type Failure struct {
	Text  string `json:"error"`
	Cause string `json:"cause,omitempty"` // a name of causes
}

// causes are what whoever asks tells from other errors.
var causes = map[string]error{"damage": store.ErrCorrupt, "no key": store.ErrNoKey}

// NewFailure returns what is sent of an error.
func NewFailure(err error) *Failure {
	f := &Failure{Text: err.Error()}
	for name, cause := range causes {
		if errors.Is(err, cause) {
			f.Cause = name
		}
	}
	return f
}

func (f *Failure) Error() string { return f.Text }

// Is reports whether target is the cause.
func (f *Failure) Is(target error) bool { return causes[f.Cause] == target }

// part is one element of an answer: keys, a dictionary, a record, a header, or the
// error that ends it.
type part struct {
	_msgpack   struct{} `msgpack:",as_array"` //nolint:unused // read by msgpack
	Error      string
	Keys       []string
	Key        string // of a record
	Codec      byte
	Dictionary uint64
	Bytes      int
	Payload    []byte
	Header     *store.Header
	Cause      string // of the error
}

// DictionaryName tells a dictionary from every other, also from that of a process that
// was here before and had the number from another file.
func DictionaryName(id uint64, dictionary []byte) string {
	return fmt.Sprintf("%d-%08x", id, crc32.ChecksumIEEE(dictionary))
}

// Writer writes the parts of an answer.
type Writer struct {
	buf *bufio.Writer
	enc *msgpack.Encoder
}

// NewWriter returns a Writer to w, with a buffer.
func NewWriter(w io.Writer) *Writer {
	buf := bufio.NewWriterSize(w, 32<<10) // msgpack writes a byte at a time
	return &Writer{buf, msgpack.NewEncoder(buf)}
}

// Flush writes what is in the buffer.
func (w *Writer) Flush() error { return w.buf.Flush() }

// Keys writes keys without their objects.
func (w *Writer) Keys(keys []string) error { return w.enc.Encode(&part{Keys: keys}) }

// Dictionary writes what later records need.
func (w *Writer) Dictionary(id uint64, dictionary []byte) error {
	return w.enc.Encode(&part{Dictionary: id, Payload: dictionary})
}

// Record writes an object.
func (w *Writer) Record(r store.Record) error {
	return w.enc.Encode(&part{Key: r.Key, Codec: r.Codec, Dictionary: r.Dictionary, Bytes: r.Bytes, Payload: r.Payload})
}

// Header writes what is known of an object without decoding it.
func (w *Writer) Header(h store.Header) error { return w.enc.Encode(&part{Header: &h}) }

// Error writes why there is no more, and flushes.
func (w *Writer) Error(err error) error {
	f := NewFailure(err)
	if err := w.enc.Encode(&part{Error: f.Text, Cause: f.Cause}); err != nil {
		return err
	}
	return w.Flush()
}

// Answer is what Read has read.
type Answer struct {
	Keys         []string
	Records      []store.Record
	Headers      []store.Header
	Dictionaries map[uint64][]byte
}

// Read reads all parts. Errors: a *Failure that the writer has written, or one of r, or
// of bytes that are no parts.
func Read(r io.Reader) (Answer, error) {
	a := Answer{Dictionaries: map[uint64][]byte{}}
	for dec := msgpack.NewDecoder(r); ; {
		if _, err := dec.PeekCode(); errors.Is(err, io.EOF) {
			return a, nil // between two parts: within one it is cut
		}
		var p part
		switch err := dec.Decode(&p); {
		case err != nil:
			return Answer{}, fmt.Errorf("read the answer: %w", err)
		case p.Error != "":
			return Answer{}, &Failure{p.Error, p.Cause}
		case p.Keys != nil:
			a.Keys = append(a.Keys, p.Keys...)
		case p.Header != nil:
			a.Headers = append(a.Headers, *p.Header)
		case p.Key == "":
			a.Dictionaries[p.Dictionary] = p.Payload
		default:
			a.Records = append(a.Records, store.Record{
				Key: p.Key, Codec: p.Codec, Dictionary: p.Dictionary, Payload: p.Payload, Bytes: p.Bytes,
			})
		}
	}
}
