package protoplan_test

import (
	"bytes"
	"flag"
	"math/rand"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/informctl/informctl/codec/internal/protoplan"
	"github.com/informctl/informctl/internal/testobjects"
)

var seed = flag.Int64("protoplan.seed", 0, "seed of the random objects; 0: the time")

func source(t *testing.T) rand.Source {
	t.Helper()
	s := *seed
	if s == 0 {
		s = time.Now().UnixNano()
	}
	t.Logf("-protoplan.seed=%d", s)
	return rand.NewSource(s)
}

// eachType calls f for every type of client-go's scheme with generated protobuf.
func eachType(f func(t reflect.Type)) {
	for _, typ := range scheme.Scheme.AllKnownTypes() {
		if reflect.PointerTo(typ).Implements(reflect.TypeFor[protoplan.Message]()) {
			f(typ)
		}
	}
}

// unplanned are the kinds of client-go's scheme that generated code decodes.
const unplanned = 10

// TestTypes checks plans against generated code: random objects, and their messages with
// damage.
func TestTypes(t *testing.T) {
	src := source(t)
	rng, fuzz := rand.New(src), fuzzer.FuzzerFor(metafuzzer.Funcs, src, scheme.Codecs)
	planned, without, damaged, accepted := 0, 0, 0, 0
	eachType(func(typ reflect.Type) {
		p := protoplan.For(typ)
		if p == nil {
			without++
			return
		}
		planned++
		for range 10 {
			obj := reflect.New(typ).Interface()
			fuzz.Fill(obj)
			data, err := obj.(protoplan.Message).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			judge(t, p, typ, data, true)
			for range 5 {
				damaged++
				if judge(t, p, typ, damage(rng, data), false) {
					accepted++
				}
			}
		}
	})
	t.Logf("%d types with a plan, %d without; %d damaged messages, of which plans accepted %d", planned, without, damaged, accepted)
	if planned < 200 || without > unplanned {
		t.Errorf("%d types have a plan, %d have none", planned, without)
	}
}

// judge compares the plan with generated code, and reports whether the plan has accepted
// the message.
func judge(t *testing.T, p *protoplan.Plan, typ reflect.Type, data []byte, whole bool) bool {
	t.Helper()
	want := reflect.New(typ).Interface().(protoplan.Message)
	wantErr := want.Unmarshal(data)
	got, ok := p.Decode(bytes.Clone(data), len(data)%2 == 0)
	if whole && !ok {
		t.Errorf("%s: its own message is refused", typ)
	}
	if ok && (wantErr != nil || !reflect.DeepEqual(got, want)) {
		t.Fatalf("%s: decoded differently (error of generated code: %v)", typ, wantErr)
	}
	again, err := []byte(nil), wantErr
	if err == nil {
		again, err = want.Marshal()
	}
	is := err == nil && bytes.Equal(again, data)
	if says := p.IsCanonical(data); says && !is {
		t.Fatalf("%s: accepted, but it is not canonical", typ)
	} else if whole && is && !says {
		t.Errorf("%s: its own message is not canonical", typ)
	}
	return ok
}

// damage returns a copy of data with something wrong.
func damage(rng *rand.Rand, data []byte) []byte {
	out := bytes.Clone(data)
	if len(out) == 0 {
		return []byte{8}
	}
	i := rng.Intn(len(out))
	switch rng.Intn(4) {
	case 0:
		return out[:i]
	case 1:
		out[i] ^= 1 << rng.Intn(8)
	case 2:
		out[i] = byte(rng.Intn(256))
	case 3:
		out = append(out[:i], append(bytes.Clone(out[i:min(len(out), i+rng.Intn(20))]), out[i:]...)...)
	}
	return out
}

// TestNothingIsShared checks what an object shares with its message, and what a kept
// string keeps.
func TestNothingIsShared(t *testing.T) {
	data, err := testobjects.Pod(1, 1).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	obj, ok := protoplan.For(reflect.TypeFor[corev1.Pod]()).Decode(data, false)
	if !ok {
		t.Fatal("refused")
	}
	pod := obj.(*corev1.Pod)
	apart := map[string]string{"name": pod.Name, "namespace": pod.Namespace, "uid": string(pod.UID), "rv": pod.ResourceVersion}
	for k, v := range pod.Labels {
		apart["label "+k] = v
	}
	want, image, fields := map[string]string{}, pod.Spec.Containers[0].Image, pod.ManagedFields[0].FieldsV1.GetRawString()
	for k, v := range apart {
		want[k] = string([]byte(v))
	}
	image, before := string([]byte(image)), image
	for i := range data {
		data[i] = '#'
	}
	if !reflect.DeepEqual(apart, want) || fields != pod.ManagedFields[0].FieldsV1.GetRawString() {
		t.Errorf("changed with the message: %v, %v", apart, want)
	}
	if image == before {
		t.Error("no string refers to the message: the test proves nothing")
	}
}

func FuzzPod(f *testing.F) {
	for i := range 5 {
		data, err := testobjects.Pod(i, 1).Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	typ := reflect.TypeFor[corev1.Pod]()
	p := protoplan.For(typ)
	f.Fuzz(func(t *testing.T, data []byte) { judge(t, p, typ, data, false) })
}

var sink any

func BenchmarkPod(b *testing.B) {
	var messages [][]byte
	for i := range 500 {
		data, err := testobjects.Pod(i, 1).Marshal()
		if err != nil {
			b.Fatal(err)
		}
		messages = append(messages, data)
	}
	p := protoplan.For(reflect.TypeFor[corev1.Pod]())
	b.Run("plan", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			sink, _ = p.Decode(messages[i%len(messages)], true)
		}
	})
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			pod := &corev1.Pod{}
			if err := pod.Unmarshal(messages[i%len(messages)]); err != nil {
				b.Fatal(err)
			}
			sink = pod
		}
	})
	b.Run("check", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if !p.IsCanonical(messages[i%len(messages)]) {
				b.Fatal("not canonical")
			}
		}
	})
}
