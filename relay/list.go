package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/table"
)

// list is a list whose items are read while it is written, a page at a time: what it
// takes of memory is a page. It has no field Items, so that the handlers leave it alone.
type list struct {
	metav1.TypeMeta
	meta   metav1.ListMeta
	ctx    context.Context
	of     *served
	pages  iter.Seq2[[]store.Entry, error] // of one moment; may be read several times
	target *target                         // of the items; nil: none
	kinds  bool                            // an item is stored with its kind
}

// DeepCopyObject implements runtime.Object. A list does not change.
func (l *list) DeepCopyObject() runtime.Object { return l }

// GetListMeta implements metav1.ListMetaAccessor.
func (l *list) GetListMeta() metav1.ListInterface { return &l.meta }

// target is what a client wants instead of the objects.
type target struct {
	kind schema.GroupVersionKind // Table or PartialObjectMetadataList
	// Of a Table: the rows of an answer have the columns that were told first.
	table   *metav1.TableOptions
	printer table.Kind
}

func (t *target) isTable() bool { return t != nil && t.kind.Kind == "Table" }

// maxBuilt bounds a list that is built in memory, in bytes of its JSON.
const maxBuilt = 8 << 20

func (l *list) encode(e *encoder, w io.Writer) error {
	switch {
	case e.mediaType == runtime.ContentTypeProtobuf:
		return l.protobuf(w)
	case e.mediaType == runtime.ContentTypeYAML:
		return l.yaml(w)
	case e.pretty:
		return l.indented(w)
	}
	return l.json(w)
}

func (l *list) yaml(w io.Writer) error {
	b := &bounded{left: maxBuilt}
	if err := l.json(b); errors.Is(err, errFull) {
		return apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "list", schema.GroupResource{}, "",
			fmt.Sprintf("a list in YAML has at most %d MiB here; ask for JSON, or for pages with limit", maxBuilt>>20), 0, true)
	} else if err != nil {
		return err
	}
	y, err := yaml.JSONToYAML(b.Bytes())
	if err != nil {
		return err
	}
	_, err = w.Write(y)
	return err
}

// indented writes the list as JSON for people. One that is too long to be built is not
// indented.
func (l *list) indented(w io.Writer) error {
	b := &bounded{left: maxBuilt}
	if err := l.json(b); errors.Is(err, errFull) {
		return l.json(w)
	} else if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, bytes.TrimSuffix(b.Bytes(), []byte("\n")), "", "  "); err != nil {
		return err
	}
	_, err := out.WriteTo(w)
	return err
}

var errFull = errors.New("the list is too long to be built in memory")

// bounded is a buffer that returns errFull when it is full.
type bounded struct {
	bytes.Buffer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errFull
	}
	return b.Buffer.Write(p)
}

// kind returns the kind of the list.
func (l *list) kind() schema.GroupVersionKind {
	if l.target != nil {
		return l.target.kind
	}
	return l.of.Scope.Kind.GroupVersion().WithKind(l.of.Scope.Kind.Kind + "List")
}

// entries yields the entries of all pages.
func (l *list) entries(yield func(store.Entry, error) bool) {
	for page, err := range l.pages {
		if err != nil {
			yield(store.Entry{}, err)
			return
		}
		for _, e := range page {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// protobuf writes the list. Its length comes first, so that the sizes of the items are
// added up before.
func (l *list) protobuf(w io.Writer) error {
	m, err := l.meta.Marshal()
	if err != nil {
		return err
	}
	metadata, items := protowire.Number(1), protowire.Number(2)
	if l.target != nil && l.target.kind.Version == "v1beta1" {
		metadata, items = items, metadata // that version had no metadata at first
	}
	head := protowire.AppendBytes(protowire.AppendTag(nil, metadata, protowire.BytesType), m)
	buf := buffers.Get().(*[]byte)
	defer release(buf)
	total := len(head)
	for e, err := range l.entries {
		if err != nil {
			return unavailable(err)
		}
		n, err := l.size(buf, e)
		if err != nil {
			return unavailable(err)
		}
		total += 1 + protowire.SizeBytes(n)
	}
	out := newChunks(l.ctx, w)
	out.Write(protobufPrefix)
	out.Write(unknownHead(l.kind(), total))
	if metadata < items { // the server writes the fields by their numbers
		out.Write(head)
	}
	written := len(head)
	for e, err := range l.entries {
		if err != nil {
			return out.fail(err)
		}
		item, err := l.item(buf, e)
		if err != nil {
			return out.fail(err)
		}
		var tag [12]byte
		t := protowire.AppendVarint(protowire.AppendTag(tag[:0], items, protowire.BytesType), uint64(len(item)))
		out.Write(t)
		out.Write(item)
		written += len(t) + len(item)
		if err := out.next(); err != nil {
			return err
		}
	}
	if l.kinds || written != total {
		l.of.sized.Store(neverSized)
	} else if l.target == nil {
		l.of.sized.CompareAndSwap(unknownSized, isSized)
	}
	if written != total {
		return out.fail(fmt.Errorf("%s: a list has %d bytes instead of %d", l.of.Scope, written, total))
	}
	if metadata > items {
		out.Write(head)
	}
	out.Write(unknownTail)
	return out.end()
}

// size returns how many bytes item returns for an entry.
func (l *list) size(buf *[]byte, e store.Entry) (int, error) {
	if l.target == nil && e.Raw != nil && l.of.payloads != nil && l.of.sized.Load() == isSized {
		if n, id, err := l.of.payloads.PayloadSize(e); err != nil || id == codec.IDProtobuf {
			return n - noTypeMeta, err
		}
	}
	item, err := l.item(buf, e)
	return len(item), err
}

// item returns the protobuf message of an item. It may be part of *buf.
func (l *list) item(buf *[]byte, e store.Entry) ([]byte, error) {
	o := &object{of: l.of, entry: e}
	m, head, err := l.of.message(buf, e)
	l.kinds = l.kinds || err == nil && head != noTypeMeta
	switch {
	case l.target == nil && errors.Is(err, errNoMessage):
		return o.message(buf)
	case l.target == nil:
		return m, err
	case errors.Is(err, errNoMessage):
		partial, err := o.metadata(l.target.kind.GroupVersion())
		if err != nil {
			return nil, err
		}
		return partial.Marshal()
	case err != nil:
		return nil, err
	}
	return metadataOf(m)
}

// metadataOf returns the part of a message that is the metadata. It is the first field of
// every kind, and the only one of PartialObjectMetadata.
func metadataOf(message []byte) ([]byte, error) {
	for at := 0; at < len(message); {
		number, _, n := protowire.ConsumeField(message[at:])
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		if number == 1 {
			return message[at : at+n], nil
		}
		at += n
	}
	return nil, nil
}

var jsonSerializer = jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, jsonserializer.SerializerOptions{})

// json writes the list as JSON.
func (l *list) json(w io.Writer) error {
	m, err := json.Marshal(l.meta)
	if err != nil {
		return err
	}
	apiVersion, kind := l.kind().ToAPIVersionAndKind()
	head, tail := fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[`, kind, apiVersion, m), "]}\n"
	appendItem := l.appendObject
	switch {
	case l.target.isTable():
		columns, err := json.Marshal(columns(l.target.printer, l.target.table))
		if err != nil {
			return err
		}
		head = fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":%s,"columnDefinitions":%s,"rows":[`, kind, apiVersion, m, columns)
		appendItem = l.appendRow
	case l.target != nil:
		appendItem = l.appendMetadata
	case l.of.Scope.Form == store.Unstructured: // the server sorts the fields of these
		if l.meta.Continue == "" {
			m = bytes.Replace(m, []byte("{"), []byte(`{"continue":"",`), 1)
		}
		head = fmt.Sprintf(`{"apiVersion":%q,"items":[`, apiVersion)
		tail = fmt.Sprintf("],\"kind\":%q,\"metadata\":%s}\n", kind, m)
	}
	out := newChunks(l.ctx, w)
	out.WriteString(head)
	isFirst := true
	for e, err := range l.entries {
		if err != nil {
			return out.fail(err)
		}
		if !isFirst {
			out.WriteByte(',')
		}
		isFirst = false
		if err := appendItem(&out.Buffer, e); err != nil {
			return out.fail(err)
		}
		out.Truncate(len(bytes.TrimSuffix(out.Bytes(), []byte("\n"))))
		if err := out.next(); err != nil {
			return err
		}
	}
	out.WriteString(tail)
	return out.end()
}

// appendObject appends an item as the server has it in a list: one of a typed list has no
// kind.
func (l *list) appendObject(b *bytes.Buffer, e store.Entry) error {
	decoded, err := (&object{of: l.of, entry: e}).decoded()
	if err != nil {
		return err
	}
	if l.of.Scope.Form == store.Typed {
		decoded = own(decoded, false)
		decoded.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return jsonSerializer.Encode(decoded, b)
}

// appendMetadata appends the metadata of an item.
func (l *list) appendMetadata(b *bytes.Buffer, e store.Entry) error {
	partial, err := (&object{of: l.of, entry: e}).metadata(l.target.kind.GroupVersion())
	if err != nil {
		return err
	}
	return json.NewEncoder(b).Encode(partial)
}

// metadata returns the object without all but its metadata, in a version of that.
func (o *object) metadata(version schema.GroupVersion) (*metav1.PartialObjectMetadata, error) {
	decoded, err := o.decoded()
	if err != nil {
		return nil, err
	}
	m, err := meta.Accessor(decoded)
	if err != nil {
		return nil, err
	}
	partial := meta.AsPartialObjectMetadata(m)
	partial.SetGroupVersionKind(version.WithKind("PartialObjectMetadata"))
	return partial, nil
}

// chunks is what waits to be written of a list.
type chunks struct {
	bytes.Buffer
	ctx   context.Context
	w     io.Writer
	whole bool // w can still forget what was written
	begun bool // w has something that it cannot forget
}

// chunk is how much of a list is written at once, in bytes.
const chunk = 64 << 10

func newChunks(ctx context.Context, w io.Writer) *chunks {
	_, whole := w.(*bounded)
	return &chunks{ctx: ctx, w: w, whole: whole}
}

// next writes what waits if that is a chunk.
func (c *chunks) next() error {
	if c.Len() < chunk {
		return nil
	}
	return c.end()
}

// end writes what waits.
func (c *chunks) end() error {
	if err := c.ctx.Err(); err != nil {
		return c.fail(err)
	}
	c.begun = !c.whole
	if _, err := c.WriteTo(c.w); err != nil {
		return c.fail(err)
	}
	return nil
}

// fail returns the error or, if the answer has begun, ends the connection: only so does
// the client see that the list is not whole.
func (c *chunks) fail(err error) error {
	switch {
	case c.begun:
		panic(aborted{err})
	case errors.Is(err, errFull): // the caller knows another way
		return err
	}
	return unavailable(err)
}

// aborted ends an answer that has begun.
type aborted struct{ error }
