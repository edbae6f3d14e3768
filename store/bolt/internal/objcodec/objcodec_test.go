package objcodec_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/indexes"
	"github.com/informctl/informctl/store/bolt/internal/objcodec"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

var errDamaged = errors.New("damaged")

func newCodec(t *testing.T, prototype runtime.Object) *objcodec.Codec {
	t.Helper()
	c := &objcodec.Codec{
		Decompress: func(_ uint64, payload, _ []byte) ([]byte, error) { return payload, nil },
		Corrupt:    func(where string, err error) error { return fmt.Errorf("%w: %s: %w", errDamaged, where, err) },
	}
	c.Unreadable = c.Corrupt
	if prototype != nil {
		var err error
		if c.Codec, err = codec.For(prototype); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func node(labels map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "a", UID: "1", ResourceVersion: "7", CreationTimestamp: metav1.Unix(100, 0), Labels: labels,
	}}
}

func set() *indexes.Set {
	byZone := index.Label("zone")
	return &indexes.Set{Stored: map[string]index.Index{byZone.Name: byZone}, Volatile: cache.Indexers{}}
}

func TestPrepareAndDecode(t *testing.T) {
	c, obj := newCodec(t, &corev1.Node{}), node(map[string]string{"zone": "x"})
	e, err := c.PrepareChange(set(), store.Change{Key: "a", Object: obj})
	if err != nil {
		t.Fatal(err)
	}
	want := &record.Header{UID: "1", RV: "7", Created: 100, Labels: obj.Labels, Index: map[string][]string{index.Label("zone").Name: {"x"}}}
	want.Hash, want.Size = e.Head.Hash, e.Head.Size
	if diff := cmp.Diff(want, e.Head); diff != "" {
		t.Error(diff)
	}
	got, err := c.Decode(c.Pending(e), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(runtime.Object(obj), got); diff != "" {
		t.Error(diff)
	}
	if hash, err := c.Hash("a", obj); err != nil || string(hash) != string(e.Head.Hash) {
		t.Errorf("Hash = %x, %v, want that of the entry, %x", hash, err, e.Head.Hash)
	}
	if n := c.Encodes.Read().Count; n != 2 {
		t.Errorf("%d encodes are counted, want 2", n)
	}
	if n := c.Decodes.Read().Count; n != 1 {
		t.Errorf("%d decodes are counted, want 1", n)
	}
}

// TestMessage prepares an object as the server has sent it: its header is that of the
// decoded object.
func TestMessage(t *testing.T) {
	c, obj := newCodec(t, &corev1.Node{}), node(nil)
	data, err := c.Payload(obj.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	names := &indexes.Set{Stored: map[string]index.Index{}, Volatile: cache.Indexers{}}
	sent := &store.EncodedObject{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: data}
	e, err := c.PrepareListed(names, sent)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := c.PrepareListed(names, obj)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plain.Head, e.Head); diff != "" {
		t.Error(diff)
	}
	if n := c.Decodes.Read().Count; n != 0 || e.Object != nil {
		t.Errorf("%d objects were decoded, and the entry has %v: no index needs them", n, e.Object)
	}
	if e, err = c.PrepareListed(set(), sent); err != nil || e.Object == nil {
		t.Errorf("the object was not decoded for an index by labels: %v", err)
	}
	c.DecodesAll = true
	if e, err = c.PrepareListed(names, sent); err != nil || e.Object == nil {
		t.Errorf("the object was not decoded although every object is kept decoded: %v", err)
	}
}

func TestWithoutCodec(t *testing.T) {
	c := newCodec(t, nil)
	c.Scope.Form = store.Metadata
	if _, err := c.Encode(node(nil)); !errors.Is(err, objcodec.ErrNone) {
		t.Errorf("Encode: %v", err)
	}
	if _, err := c.PrepareChange(set(), store.Change{Key: "a", Object: node(nil)}); !errors.Is(err, objcodec.ErrNone) {
		t.Errorf("PrepareChange: %v", err)
	}
	if hash, err := c.Hash("a", node(nil)); err != nil || hash != nil {
		t.Errorf("Hash = %x, %v, want none", hash, err)
	}
	e, err := c.PrepareChange(set(), store.Change{Key: "a", RV: "8", Departs: true, Last: node(nil)})
	if err != nil || e.Head != nil || e.DeletedAt != "8" || !e.Departing || e.Last.Bytes != nil {
		t.Errorf("a deletion is %+v, %v", e, err)
	}
	if _, err := c.PrepareChange(set(), store.Change{}); err == nil {
		t.Error("a deletion without a key is accepted")
	}
	meta := newCodec(t, &metav1.PartialObjectMetadata{})
	entry, err := meta.Encode(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	if obj, err := c.Decode(entry, nil); err != nil || obj.(*metav1.PartialObjectMetadata).Name != "a" {
		t.Errorf("metadata is decoded as %v, %v", obj, err)
	}
}

// TestDecodeLater decodes with the Codec of a later store first, and with the entry's own
// if that one cannot.
func TestDecodeLater(t *testing.T) {
	c, later := newCodec(t, &corev1.Node{}), newCodec(t, &corev1.Node{})
	e, err := c.Encode(node(nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Decode(e, later); err != nil || later.Decodes.Read().Count != 1 || c.Decodes.Read().Count != 0 {
		t.Errorf("the later Codec was not asked first: %v", err)
	}
	later.Decompress = func(uint64, []byte, []byte) ([]byte, error) { return nil, errors.New("no dictionary") }
	if _, err := c.Decode(e, later); err != nil {
		t.Errorf("what a later Codec cannot decode is not decoded: %v", err)
	}
	c.Decompress = later.Decompress
	if _, err := c.Decode(e, later); !errors.Is(err, errDamaged) {
		t.Errorf("an object that nobody can decode is decoded: %v", err)
	}
	held := node(nil)
	if obj, err := c.Decode(store.Entry{Key: "a", Object: held}, nil); err != nil || obj != runtime.Object(held) {
		t.Errorf("a decoded object is not returned as it is: %v", err)
	}
}

func TestPending(t *testing.T) {
	c := newCodec(t, &corev1.Node{})
	if e := c.Pending(&overlay.Entry{Key: "a", Name: "a"}); e.Key != "a" || e.Raw != nil {
		t.Errorf("a deletion is %+v", e)
	}
	e := c.Pending(&overlay.Entry{Key: "a", Name: "a", Head: &record.Header{}, Codec: 9, Payload: record.Packed{Bytes: []byte("x")}})
	if id, _, payload, err := record.ParseRaw(e.Raw); err != nil || id != 9 || string(payload) != "x" {
		t.Errorf("the entry has codec %d and payload %q, %v", id, payload, err)
	}
	if got, want := c.FinalEntry("a", c.Final(node(nil))), "a"; got.Key != want || c.Final(nil).Bytes != nil {
		t.Errorf("a final state is %+v", got)
	}
}
