package objectdiff_test

import (
	"math/rand"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/informctl/informctl/cmd/informctl/internal/objectdiff"
	"github.com/informctl/informctl/codec"
)

// TestPairs checks, for random objects of all kinds, that two states that are decoded
// together differ in the same fields as the whole objects do.
func TestPairs(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	src := rand.NewSource(seed)
	rng, fuzz := rand.New(src), fuzzer.FuzzerFor(metafuzzer.Funcs, src, scheme.Codecs)
	comparison := objectdiff.Comparison{ShowSecrets: true}
	kinds, fields := sets.New[string](), 0
	for gvk, typ := range scheme.Scheme.AllKnownTypes() {
		pairs := codec.PairsOf(gvk)
		if pairs == nil {
			continue
		}
		kinds.Insert(gvk.Kind)
		for range 5 {
			var whole, encoded [2]runtime.Object
			for i := range whole {
				v := reflect.New(typ)
				if fuzz.Fill(v.Interface()); i == 1 {
					mix(rng, v.Elem(), reflect.ValueOf(whole[0].DeepCopyObject()).Elem())
				}
				whole[i] = v.Interface().(runtime.Object)
				data, err := codec.ForKind(gvk).Encode(whole[i])
				if err == nil {
					whole[i], err = codec.ForKind(gvk).Decode(data)
				}
				if err == nil {
					encoded[i], err = pairs.Codec().Decode(data)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			want, err := comparison.Fields(false, whole[0], whole[1])
			if err != nil {
				continue // a random RawExtension is no JSON
			}
			maps, err := comparison.Fields(false, inMaps(t, whole[0]), inMaps(t, whole[1]))
			if err != nil {
				t.Fatal(err)
			}
			// Bytes that are empty and absent are one of a type, and two in JSON.
			if diff := cmp.Diff(maps, want, cmp.AllowUnexported(objectdiff.Field{})); diff != "" && gvk.Kind != "RangeAllocation" {
				t.Fatalf("%s: (-maps +whole):\n%s", gvk, diff)
			}
			x, y, err := pairs.Decode(encoded[0], encoded[1])
			if err != nil {
				t.Fatal(err)
			}
			got, err := comparison.Fields(false, x, y)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(objectdiff.Field{})); diff != "" {
				t.Fatalf("%s: (-whole +pairs):\n%s", gvk, diff)
			}
			fields += len(got)
		}
	}
	if t.Logf("%d kinds, %d fields differ", kinds.Len(), fields); kinds.Len() < 90 || fields < 1000 {
		t.Error("too few to mean anything")
	}
}

// inMaps returns an object without its type.
func inMaps(t *testing.T, obj runtime.Object) runtime.Object {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

// mix sets some of what is in v to what is in other.
func mix(rng *rand.Rand, v, other reflect.Value) {
	if rng.Intn(3) == 0 && v.CanSet() {
		v.Set(other)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				mix(rng, v.Field(i), other.Field(i))
			}
		}
	case reflect.Pointer:
		if !v.IsNil() && !other.IsNil() {
			mix(rng, v.Elem(), other.Elem())
		}
	case reflect.Slice:
		for i := range min(v.Len(), other.Len()) {
			mix(rng, v.Index(i), other.Index(i))
		}
	}
}
