package codec_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/informctl/informctl/codec"
)

// jsonCodec returns the codec of unstructured objects.
func jsonCodec(t testing.TB) codec.FromJSON {
	t.Helper()
	return mustFor(t, &unstructured.Unstructured{}).(codec.FromJSON)
}

// widget is for an element of a list of Widgets.
var widget = codec.JSONObject{APIVersion: "example.com/v1", Kind: "Widget"}

// judgeJSON compares what is encoded from a text with what is encoded from the object
// that client-go decodes from it, and reports whether the text was taken.
func judgeJSON(t *testing.T, text []byte, o codec.JSONObject) bool {
	t.Helper()
	c := jsonCodec(t)
	got, _, at, ok := c.AppendJSON([]byte("x"), text, o)
	if !ok {
		if string(got) != "x" {
			t.Errorf("%q: appended %q and refused", text, got)
		}
		return false
	}
	text = text[:at.End]
	u := &unstructured.Unstructured{}
	if o.Kind != "" {
		list := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"items":[%s]}`, o.APIVersion, o.Kind+"List", text)
		obj, err := runtime.Decode(unstructured.UnstructuredJSONScheme, []byte(list))
		if err != nil {
			t.Fatalf("%q: taken, but client-go fails: %v", text, err)
		}
		u = &obj.(*unstructured.UnstructuredList).Items[0]
	} else if err := runtime.DecodeInto(unstructured.UnstructuredJSONScheme, text, u); err != nil {
		t.Fatalf("%q: taken, but client-go fails: %v", text, err)
	}
	if o.WithoutManagedFields {
		u.SetManagedFields(nil)
	}
	want, err := c.Encode(u)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got[1:], want) {
		t.Fatalf("%s:\n got %q\nwant %q", text, got[1:], want)
	}
	if text[at.Metadata] != '}' {
		t.Fatalf("%q: the metadata ends at %d", text, at.Metadata)
	}
	m, ok := codec.MetadataOf(c, want)
	labels := map[string]string(nil)
	for key, value := range m.Labels() {
		if labels == nil {
			labels = map[string]string{}
		}
		labels[string(key)] = string(value)
	}
	created := int64(0)
	if at := u.GetCreationTimestamp(); !at.IsZero() {
		created = at.Unix()
	}
	is := fmt.Sprint(string(m.Name), string(m.Namespace), string(m.UID), string(m.RV), string(m.SelfLink), m.Created, labels, string(m.APIVersion), string(m.Kind))
	must := fmt.Sprint(u.GetName(), u.GetNamespace(), u.GetUID(), u.GetResourceVersion(), u.GetSelfLink(), created, u.GetLabels(), u.GetAPIVersion(), u.GetKind())
	if !ok || is != must {
		t.Fatalf("%q: metadata %s, want %s (%t)", text, is, must, ok)
	}
	return true
}

func TestAppendJSON(t *testing.T) {
	object := func(rest string) string {
		return `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","labels":{"x":"y"},"managedFields":[{}],"creationTimestamp":"2026-01-01T00:00:00Z"}` + rest + `}`
	}
	long := strings.Repeat("x", 70_000)
	var many strings.Builder
	for i := range 70_000 {
		fmt.Fprintf(&many, `%d,"k%d":`, i, 99_999-i)
	}
	for _, test := range []struct {
		text  string
		taken bool
	}{
		{object(``), true},
		{object(`,"b":[0,-1,127,128,255,256,65535,65536,4294967295,4294967296,9223372036854775807,9223372036854775808]`), true},
		{object(`,"b":[-32,-33,-128,-129,-32768,-32769,-2147483648,-2147483649,-9223372036854775808,-0,1.5,1e3,1e-7,-0.0]`), true},
		{object(`,"b":{"z":1,"a":{"d":[],"c":{}},"":null},"a":true,"c":false`), true},
		{object(`,"b":["\u00e9\n\ud800","é","` + long[:31] + `","` + long[:32] + `","` + long[:255] + `","` + long[:256] + `","` + long + `"]`), true},
		{object(`,"b":[` + strings.Repeat("[],", 15) + `0],"c":[` + strings.Repeat("0,", 70_000) + `0]`), true},
		{object(`,"b":{"a":` + many.String() + `1}`), true},
		{" " + object(" , \"b\" : [ 1 , 2 ] "), true},
		{`{"kind":"Widget","metadata":{"labels":null,"creationTimestamp":null,"name":"a"},"apiVersion":"example.com/v1"}`, true},
		{object(`,"b":1e999`), false},
		{object(`,"b":1,"b":2`), false},
		{object(`,"b":{"c":1,"d":2,"c":3}`), false},
		{object(",\"b\":\"\xff\""), false},
		{object(`,"b":`), false},
		{object(``)[:40], false},
		{`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","labels":{"x":1}}}`, false},
		{`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":1}}`, false},
		{`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"creationTimestamp":"soon"}}`, false},
		{`{"apiVersion":"example.com/v1","kind":"Widget","metadata":[]}`, false},
		{`{"apiVersion":"example.com/v1","kind":"Widget"}`, false},
		{`{"apiVersion":"example.com/v2","kind":"Gadget","metadata":{}}`, true},
		{`{"apiVersion":"","kind":"Widget","metadata":{}}`, false},
		{`{"apiVersion":1,"kind":"Widget","metadata":{}}`, false},
		{`{"kind":"Widget","metadata":{}}`, false},
		{`[]`, false},
		{``, false},
	} {
		for _, strip := range []bool{false, true} {
			o := codec.JSONObject{WithoutManagedFields: strip}
			if taken := judgeJSON(t, []byte(test.text), o); taken != test.taken {
				t.Errorf("%.200s: taken %t", test.text, taken)
			}
			if judgeJSON(t, []byte(test.text+`,{"next":1}]`), o) != test.taken {
				t.Errorf("%.200s, with more behind it: not as alone", test.text)
			}
		}
	}
	for _, o := range []codec.JSONObject{{}, widget, {Kind: "Widget"}, {APIVersion: "example.com/v1"}} {
		if judgeJSON(t, []byte(`{"metadata":{"name":"a"},"data":1}`), o) != (o == widget) {
			t.Errorf("no kind, added %v: not as expected", o)
		}
	}
}

// TestAppendJSONOfTypes encodes the JSON of all types of client-go, as an API server
// sends it for them.
func TestAppendJSONOfTypes(t *testing.T) {
	fuzz := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(1), scheme.Codecs)
	n := 0
	for gvk := range scheme.Scheme.AllKnownTypes() {
		obj, err := scheme.Scheme.New(gvk)
		if err != nil || strings.HasSuffix(gvk.Kind, "List") || gvk.Version == runtime.APIVersionInternal {
			continue
		}
		fuzz.Fill(obj)
		apiVersion, kind := gvk.ToAPIVersionAndKind()
		for _, o := range []codec.JSONObject{{}, {APIVersion: apiVersion, Kind: kind, WithoutManagedFields: true}} {
			if obj.GetObjectKind().SetGroupVersionKind(gvk); o.Kind != "" {
				obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
			}
			text, err := json.Marshal(obj)
			if err != nil {
				continue
			}
			if taken := judgeJSON(t, text, o); taken {
				n++
			} else if strings.HasPrefix(string(text), `{"metadata":{`) {
				t.Errorf("%s: refused: %.300s", gvk, text)
			}
		}
	}
	if n < 100 {
		t.Errorf("%d objects taken", n)
	}
}

func FuzzJSON(f *testing.F) {
	for _, text := range []string{
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","labels":{"x":"y"},"creationTimestamp":"2026-01-01T00:00:00Z"},"spec":[1,-300,2.5,"é"]}`,
		`{"metadata":{"name":"a","managedFields":[{}],"selfLink":"x"},"data":{"b":1,"a":null}}`,
	} {
		f.Add([]byte(text), true, true)
		f.Add([]byte(text), false, false)
	}
	f.Fuzz(func(t *testing.T, text []byte, inList, strip bool) {
		o := codec.JSONObject{}
		if inList {
			o = widget
		}
		o.WithoutManagedFields = strip
		judgeJSON(t, text, o)
	})
}
