// Package wire defines the protocol between the informer's endpoint and informctl in
// addition to JSON: objects are sent in their stored form, and the client decodes them.
//
// Writers and readers must be used by one goroutine at a time.
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

// ContentType is the content type of an answer that consists of parts.
const ContentType = "application/vnd.msgpack"

// File is how a process describes its database file, as JSON.
type File struct {
	Path string `json:"path"`
	// Device and Inode show whether the path is the same file for server and client.
	Device uint64       `json:"device"`
	Inode  uint64       `json:"inode"`
	Scopes []store.Info `json:"scopes"` // as of the last commit
	// Memory contains the scopes that an informer holds in memory, even if the file also
	// contains them.
	Memory []store.Info `json:"memory"`
	// Server is the version of the server that informctl has last followed; "" if it is
	// unknown.
	Server string `json:"server,omitempty"`
}

// ServerLedger is the name under which informctl remembers its server in the file, and
// ServerVersion the value that is the version of the server that it followed last.
const (
	ServerLedger  = "informctl/server"
	ServerVersion = "version"
)

// ServerVersionOf returns the name of the value of ServerLedger that is the version of
// the server of a cluster: a file may hold several.
func ServerVersionOf(cluster string) string { return ServerVersion + "/" + cluster }

// Failure is an error in its encoded form: JSON, or a part in an answer of parts.
type Failure struct {
	Text  string `json:"error"`
	Cause string `json:"cause,omitempty"` // a key of causes
}

// causes are the errors that the client can recognise with errors.Is.
var causes = map[string]error{
	"damage": store.ErrCorrupt, "no key": store.ErrNoKey, "trimmed": store.ErrTrimmed, "lineage": store.ErrLineage,
	"no index": store.ErrNoIndex, "closed": store.ErrClosed,
}

// NewFailure returns the encoded form of an error.
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

// Is reports whether target is the cause of the failure.
func (f *Failure) Is(target error) bool { return causes[f.Cause] == target }

// part is one element of an answer: keys, a dictionary, a record, a header, or the error
// that ends the answer.
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

// DictionaryName returns a unique name of a dictionary. It also differs for dictionaries
// with the same number from the file of an earlier process.
func DictionaryName(id uint64, dictionary []byte) string {
	return fmt.Sprintf("%d-%08x", id, crc32.ChecksumIEEE(dictionary))
}

// Raw returns the Raw of an entry in the form of this protocol: the codec, and what it
// has encoded.
func Raw(codec byte, payload []byte) []byte { return append([]byte{codec}, payload...) }

// Writer writes the parts of an answer.
type Writer struct {
	buf *bufio.Writer
	enc *msgpack.Encoder
}

// NewWriter returns a buffered Writer to w.
func NewWriter(w io.Writer) *Writer {
	buf := bufio.NewWriterSize(w, 32<<10) // msgpack writes single bytes
	return &Writer{buf, msgpack.NewEncoder(buf)}
}

// Flush writes the buffered data.
func (w *Writer) Flush() error { return w.buf.Flush() }

// Keys writes keys without their objects.
func (w *Writer) Keys(keys []string) error { return w.enc.Encode(&part{Keys: keys}) }

// Dictionary writes a dictionary. Records that are compressed with it must follow later.
func (w *Writer) Dictionary(id uint64, dictionary []byte) error {
	return w.enc.Encode(&part{Dictionary: id, Payload: dictionary})
}

// Record writes an object.
func (w *Writer) Record(r store.Record) error {
	return w.enc.Encode(&part{Key: r.Key, Codec: r.Codec, Dictionary: r.Dictionary, Bytes: r.Bytes, Payload: r.Payload})
}

// Header writes the header of an object.
func (w *Writer) Header(h store.Header) error { return w.enc.Encode(&part{Header: &h}) }

// Error writes the error that ends the answer, and flushes.
func (w *Writer) Error(err error) error {
	f := NewFailure(err)
	if err := w.enc.Encode(&part{Error: f.Text, Cause: f.Cause}); err != nil {
		return err
	}
	return w.Flush()
}

// Answer is the result of Read.
type Answer struct {
	Keys         []string
	Records      []store.Record
	Headers      []store.Header
	Dictionaries map[uint64][]byte
}

// Read reads all parts. It returns a *Failure that the writer has written, an error of r,
// or an error for malformed data.
func Read(r io.Reader) (Answer, error) {
	a := Answer{Dictionaries: map[uint64][]byte{}}
	for dec := msgpack.NewDecoder(r); ; {
		if _, err := dec.PeekCode(); errors.Is(err, io.EOF) {
			// The end is between two parts. An end within a part is an error.
			return a, nil
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
