package postgres

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/postgres/internal/raw"
)

// kind is the kind of a row of the log.
type kind string

const (
	added    kind = "A"
	modified kind = "M"
	deleted  kind = "D"
	// These were found by a list. The resource version of gone is that of the mark before
	// the list, because that of the deletion is not known.
	listedNew     kind = "a"
	listedChanged kind = "m"
	gone          kind = "U"
	broken        kind = "X" // what follows cannot be told in order
	mark          kind = "B" // the rows so far are complete up to its resource version
)

// row is a row of the log with an object.
type row struct {
	kind            kind
	key             []byte
	namespace, name string
	uid             string
	rv              int64
	hash            int64 // of the data before it is compressed
	form            raw.Form
	data            []byte
}

// size returns about how many bytes the row needs in memory.
func (r *row) size() int { return len(r.data) + len(r.key) + len(r.namespace) + len(r.name) + 200 }

// maxKey is the length of the longest key that is not cut. PostgreSQL does not index
// entries over 2,704 bytes, and Kubernetes does not limit the names of roles.
const maxKey = 1 << 10

func keyOf(namespace, name string) []byte {
	k := []byte(namespace + "/" + name)
	if len(k) <= maxKey {
		return k
	}
	sum := sha256.Sum256(k)
	return append(k[:maxKey:maxKey], sum[:]...)
}

// readable returns a name that a text column takes. Kubernetes does not limit the names
// of all kinds to UTF-8 without NUL.
func readable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// errNoOrder is the error of a server that this package does not support.
var errNoOrder = errors.New("resource versions of this server have no order, and it cannot be published")

func parseRV(rv string) (int64, error) {
	n, err := strconv.ParseInt(rv, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%w: one of them is %q", errNoOrder, rv)
	}
	return n, nil
}

// newRow returns the row of an object. rv is the one that the stream is complete up to.
func newRow(k kind, gvk schema.GroupVersionKind, obj runtime.Object) (row, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return row{}, fmt.Errorf("publish an object: %w", err)
	}
	rv, err := parseRV(m.GetResourceVersion())
	if err != nil {
		return row{}, err
	}
	form, data, err := bytesOf(gvk, obj)
	if err != nil {
		return row{}, fmt.Errorf("publish %s/%s: %w", m.GetNamespace(), m.GetName(), err)
	}
	sum := sha256.Sum256(data)
	return row{
		kind: k, key: keyOf(m.GetNamespace(), m.GetName()), namespace: readable(m.GetNamespace()), name: readable(m.GetName()),
		uid: readable(string(m.GetUID())), rv: rv, hash: int64(binary.LittleEndian.Uint64(sum[:])), //nolint:gosec // any 64 bits
		form: form, data: compressor().EncodeAll(data, nil),
	}, nil
}

// bytesOf returns an object as the API server has sent it, or as it would.
func bytesOf(gvk schema.GroupVersionKind, obj runtime.Object) (raw.Form, []byte, error) {
	if o, ok := obj.(*raw.Object); ok {
		return o.Form, o.Data, nil
	}
	obj = obj.DeepCopyObject()
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	c, err := codec.For(obj)
	if err != nil {
		return 0, nil, err
	}
	if c, ok := c.(codec.FromServer); ok {
		b, err := c.Encode(obj)
		if err != nil {
			return 0, nil, err
		}
		if message, ok := c.Message(b); ok {
			return raw.Protobuf, message, nil
		}
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	b, err := json.Marshal(obj)
	return raw.JSON, b, err
}

var compressor = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		panic(err) // the options are constants
	}
	return e
})

var decompressor = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(codec.MaxDecompressed))
	if err != nil {
		panic(err) // the options are constants
	}
	return d
})

// isSame reports whether two rows are of the same state of an object.
func (h header) isSame(r *row) bool { return h.uid == r.uid && h.rv == r.rv && h.hash == r.hash }

// header is what a list compares.
type header struct {
	uid            string
	rv, hash, size int64 // size of the data in the database
}
