package codec_test

import (
	"bytes"
	"math/rand"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/codec"
)

var podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

// tryDecode decodes arbitrary data. If decoding succeeds, the result must be an object.
func tryDecode(t *testing.T, c codec.Codec, data []byte) {
	obj, err := c.Decode(data)
	if (err == nil) != (obj != nil) {
		t.Fatalf("%s: object %t, error %v", c.Name(), obj != nil, err)
	}
	if err == nil {
		if again, err := c.Encode(obj); err == nil {
			if _, err := c.Decode(again); err != nil {
				t.Fatalf("%s: what was encoded does not decode: %v", c.Name(), err)
			}
		}
	}
	_, _ = codec.DecodeAny(c.ID(), podKind, data)
}

func FuzzDecodeProtobuf(f *testing.F) {
	c := mustFor(f, &corev1.Pod{})
	addSeeds(f, c, realisticPod())
	f.Fuzz(func(t *testing.T, data []byte) { tryDecode(t, c, data) })
}

func FuzzDecodeMsgpack(f *testing.F) {
	pod, loose, weird := mustMsgpack(f, &corev1.Pod{}), mustFor(f, &unstructured.Unstructured{}), mustFor(f, &odd{})
	addSeeds(f, pod, realisticPod())
	addSeeds(f, weird, fullOdd())
	f.Fuzz(func(t *testing.T, data []byte) {
		tryDecode(t, pod, data)
		tryDecode(t, loose, data)
		tryDecode(t, weird, data)
	})
}

func addSeeds(f *testing.F, c codec.Codec, obj runtime.Object) {
	f.Helper()
	data, err := c.Encode(obj)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte{})
}

func TestDamagedRecords(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for _, example := range []runtime.Object{realisticPod(), fullOdd()} {
		for _, c := range []codec.Codec{mustFor(t, example), mustMsgpack(t, example)} {
			data, err := c.Encode(example)
			if err != nil {
				t.Fatal(err)
			}
			for n := random.Intn(4); n < len(data); n += 1 + random.Intn(8) {
				tryDecode(t, c, data[:n])
				damaged := bytes.Clone(data)
				damaged[n] = byte(random.Int())
				tryDecode(t, c, damaged)
			}
			if _, err := c.Decode(append(data, 0xc0)); err == nil {
				t.Errorf("%s: a byte too many is no error", c.Name())
			}
		}
	}
}

func TestNestingBomb(t *testing.T) {
	const deep = 10_000_000
	for name, data := range map[string][]byte{
		"lists":        bytes.Repeat([]byte{0x91}, deep),
		"maps":         bytes.Repeat([]byte{0x81, 0xa0}, deep),
		"any":          append([]byte("\x81\xa3any"), bytes.Repeat([]byte{0x91}, deep)...),
		"unknown":      append([]byte("\x81\xa7unknown"), bytes.Repeat([]byte{0x91}, deep)...),
		"typed":        append([]byte("\x81\xa4tree"), bytes.Repeat([]byte("\x81\xa8children\x91"), deep/10)...),
		"json":         append([]byte("\x81\xa3ext\xc9\x00\x98\x96\x80\x01"), bytes.Repeat([]byte{'['}, deep)...),
		"huge list":    []byte("\x81\xa4list\xdd\xff\xff\xff\xff"),
		"huge map":     []byte("\x81\xa3map\xdf\xff\xff\xff\xff"),
		"huge string":  []byte("\x81\xa4name\xdb\xff\xff\xff\xff"),
		"huge bytes":   []byte("\x81\xa5bytes\xc6\xff\xff\xff\xff"),
		"huge ext":     []byte("\x81\xa3ext\xc9\xff\xff\xff\xff\x01"),
		"map with ext": []byte("\x81\xa3map\xd4\x05\x00\x80"),
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range []codec.Codec{mustFor(t, &odd{}), mustFor(t, &unstructured.Unstructured{})} {
				if name == "json" && c.Fingerprint() != "unstructured" {
					continue // a raw extension keeps the text unchanged
				}
				if _, err := c.Decode(data); err == nil {
					t.Errorf("%s: no error", c.Name())
				}
			}
		})
	}
}

func TestEncodeOfCycleIsAnError(t *testing.T) {
	x := map[string]any{}
	x["x"] = x
	u := &unstructured.Unstructured{Object: x}
	if _, err := mustFor(t, u).Encode(u); err == nil {
		t.Error("unstructured: no error")
	}
	n := &node{Named: map[string]*node{}}
	n.Named["x"] = n
	o := &odd{Tree: n}
	if _, err := mustFor(t, o).Encode(o); err == nil {
		t.Error("struct: no error")
	}
}

func TestProtobufHeadDamage(t *testing.T) {
	c := mustFor(t, &metav1.PartialObjectMetadata{})
	for _, data := range [][]byte{nil, {0}, {1}, {0xff}, {0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, {0, 0, 0xff}} {
		if _, err := c.Decode(data); err == nil {
			t.Errorf("%x: no error", data)
		}
	}
}
