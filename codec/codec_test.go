package codec_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/informctl/informctl/codec"
)

// secretive has only private fields and its own JSON form.
type secretive struct{ a, b int64 }

func (s secretive) MarshalJSON() ([]byte, error) { return json.Marshal([]int64{s.a, s.b}) }

func (s *secretive) UnmarshalJSON(text []byte) error {
	var ab [2]int64
	err := json.Unmarshal(text, &ab)
	s.a, s.b = ab[0], ab[1]
	return err
}

type common struct {
	Shared string `json:"shared,omitempty"`
	Hidden string `json:"name,omitempty"` // the outer name wins
}

type Pointed struct {
	Inner string `json:"inner,omitempty"`
}

type node struct {
	Name     string           `json:"name"`
	Children []node           `json:"children,omitempty"`
	Named    map[string]*node `json:"named,omitempty"`
}

// odd is like the struct of a custom resource that uses every kind of field.
type odd struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	common            `json:",inline"`
	*Pointed          `json:",inline"`

	Name       string                     `json:"name,omitempty"`
	Secretive  secretive                  `json:"secretive"`
	SecretPtr  *secretive                 `json:"secretPtr,omitempty"`
	Raw        json.RawMessage            `json:"raw,omitempty"`
	Raws       map[string]json.RawMessage `json:"raws,omitempty"`
	Ext        runtime.RawExtension       `json:"ext,omitempty"`
	ExtPtr     *runtime.RawExtension      `json:"extPtr,omitempty"`
	Any        any                        `json:"any,omitempty"`
	Address    netip.Addr                 `json:"address"`
	Std        time.Time                  `json:"std"`
	Time       *metav1.Time               `json:"time,omitempty"`
	Micro      metav1.MicroTime           `json:"micro,omitempty"`
	Duration   metav1.Duration            `json:"duration"`
	Quantity   resource.Quantity          `json:"quantity"`
	Zero       *resource.Quantity         `json:"zero,omitempty"`
	Port       intstr.IntOrString         `json:"port"`
	Ports      []intstr.IntOrString       `json:"ports,omitempty"`
	Bytes      []byte                     `json:"bytes,omitempty"`
	Plain      []byte                     `json:"plain"`
	List       []string                   `json:"list,omitempty"`
	Lists      [][]string                 `json:"lists"`
	Map        map[string]string          `json:"map,omitempty"`
	ByNumber   map[int32]bool             `json:"byNumber,omitempty"`
	PtrToList  *[]string                  `json:"ptrToList,omitempty"`
	PtrToEmpty *string                    `json:"ptrToEmpty,omitempty"`
	Array      [2]uint8                   `json:"array"`
	Unsigned   uint64                     `json:"unsigned"`
	Small      int8                       `json:"small"`
	Float      float32                    `json:"float"`
	Quoted     int64                      `json:"quoted,string"`
	ZeroTime   metav1.Time                `json:"zeroTime,omitzero"`
	Tree       *node                      `json:"tree,omitempty"`
	Ignored    chan int                   `json:"-"`
	private    int
	mu         sync.Mutex
}

func (o *odd) DeepCopyObject() runtime.Object {
	c := &odd{}
	copyFields(reflect.ValueOf(c).Elem(), reflect.ValueOf(o).Elem())
	return c
}

// copyFields makes a shallow copy: no test changes shared values.
func copyFields(dst, src reflect.Value) {
	for i := range src.NumField() {
		if dst.Field(i).CanSet() {
			dst.Field(i).Set(src.Field(i))
		} else if src.Type().Field(i).Anonymous {
			copyFields(dst.Field(i), src.Field(i))
		}
	}
}

func fullOdd() *odd {
	zero := resource.MustParse("0")
	empty := ""
	when := metav1.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return &odd{
		TypeMeta:   metav1.TypeMeta{APIVersion: "odd.example.com/v1", Kind: "Odd"},
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"b": "2", "a": "1"}},
		common:     common{Shared: "s"},
		Pointed:    &Pointed{},
		Name:       "outer",
		Secretive:  secretive{1, 1<<60 + 1},
		SecretPtr:  &secretive{},
		Raw:        json.RawMessage(`{"b": 1.50, "a": "<>"}`),
		Raws: map[string]json.RawMessage{
			"nil": nil, "null": json.RawMessage("null"), "string": json.RawMessage(`"x"`), "escaped": json.RawMessage(`"\u00e9\n"`),
			"int": json.RawMessage("12"), "float": json.RawMessage("1.0"), "minus": json.RawMessage("-0"), "list": json.RawMessage("[ ]"),
			"big": json.RawMessage("123456789012345678901234567890"), "true": json.RawMessage("true"),
		},
		Ext:        runtime.RawExtension{Raw: []byte(`{"z":1,"a":[]}`)},
		ExtPtr:     &runtime.RawExtension{},
		Any:        map[string]any{"i": int64(1), "f": 1.0, "l": []any{nil, true}, "e": map[string]any{}},
		Address:    netip.MustParseAddr("2001:db8::1"),
		Std:        time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		Time:       &when,
		Micro:      metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)),
		Duration:   metav1.Duration{Duration: time.Minute},
		Quantity:   resource.MustParse("1.5Gi"),
		Zero:       &zero,
		Port:       intstr.FromString("http"),
		Ports:      []intstr.IntOrString{intstr.FromInt32(80), intstr.FromString("80")},
		Bytes:      []byte{},
		Plain:      []byte{0, 255},
		List:       []string{},
		Lists:      [][]string{nil, {}, {"x"}},
		Map:        map[string]string{},
		ByNumber:   map[int32]bool{-5: true, 7: false},
		PtrToList:  new([]string),
		PtrToEmpty: &empty,
		Array:      [2]uint8{1, 2},
		Unsigned:   math.MaxUint64,
		Small:      -128,
		Float:      0.5,
		Quoted:     -7,
		Tree:       &node{Name: "root", Children: []node{{Name: "leaf"}}, Named: map[string]*node{"nil": nil, "x": {Name: "x"}}},
	}
}

func TestOddStruct(t *testing.T) {
	for name, obj := range map[string]*odd{"full": fullOdd(), "zero": {}} {
		t.Run(name, func(t *testing.T) {
			c := mustFor(t, obj)
			if c.Name() != "msgpack" {
				t.Fatalf("codec is %s", c.Name())
			}
			roundTrip(t, c, obj)
			data, err := c.Encode(obj)
			if err != nil {
				t.Fatal(err)
			}
			got, err := codec.DecodeAny(c.ID(), schema.GroupVersionKind{}, data)
			if err != nil {
				t.Fatal(err)
			}
			// JSON gives the expected result. Inside an embedded pointer empty fields are
			// written, so that decoding allocates the pointer.
			text, err := json.Marshal(obj)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]any{}
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			if obj.Pointed != nil {
				want["inner"] = ""
			}
			text, err = json.Marshal(got.(*unstructured.Unstructured).Object)
			if err != nil {
				t.Fatal(err)
			}
			gotMap := map[string]any{}
			if err := json.Unmarshal(text, &gotMap); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, gotMap); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFieldsWithoutJSONFormMustBeZero(t *testing.T) {
	for name, set := range map[string]func(o *odd){
		"private": func(o *odd) { o.private = 1 },
		"Ignored": func(o *odd) { o.Ignored = make(chan int) },
		"mu":      func(o *odd) { o.mu.Lock() },
		"name":    func(o *odd) { o.Hidden = "x" },
		"uint8":   func(o *odd) { o.Any = []any{uint8(1)} },
	} {
		t.Run(name, func(t *testing.T) {
			o := &odd{}
			set(o)
			_, err := mustFor(t, o).Encode(o)
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("error %v does not name %s", err, name)
			}
		})
	}
}

type withChan struct {
	metav1.TypeMeta
	C chan int
}

type withInterface struct {
	metav1.TypeMeta
	S fmt.Stringer
}

type promoting struct {
	metav1.TypeMeta
	resource.Quantity
	Lost string
}

type onlyMarshals struct{ X int }

func (onlyMarshals) MarshalJSON() ([]byte, error) { return []byte("1"), nil }

type withOnlyMarshals struct {
	metav1.TypeMeta
	F onlyMarshals
}

type panicking struct{}

func (panicking) MarshalJSON() ([]byte, error) { panic("content") }
func (panicking) UnmarshalJSON([]byte) error   { panic("content") }

type withPanicking struct {
	metav1.TypeMeta `json:",inline"`
	F               panicking `json:"f"`
}

// named embeds only TypeMeta and so has the generated protobuf methods of TypeMeta.
type named struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
}

func (o *withChan) DeepCopyObject() runtime.Object         { c := *o; return &c }
func (o *withInterface) DeepCopyObject() runtime.Object    { c := *o; return &c }
func (o *promoting) DeepCopyObject() runtime.Object        { c := *o; return &c }
func (o *withOnlyMarshals) DeepCopyObject() runtime.Object { c := *o; return &c }
func (o *withPanicking) DeepCopyObject() runtime.Object    { c := *o; return &c }
func (o *named) DeepCopyObject() runtime.Object            { c := *o; return &c }

// redacted hides what it contains when it is printed.
type redacted string

func (redacted) MarshalText() ([]byte, error)    { return []byte("REDACTED"), nil }
func (r *redacted) UnmarshalText(b []byte) error { *r = redacted(b); return nil }

// picky does not unmarshal what it marshals.
type picky struct {
	Text string `json:"text"`
}

func (p picky) MarshalJSON() ([]byte, error) { return json.Marshal(p.Text) }
func (p *picky) UnmarshalJSON(b []byte) error {
	type plain picky
	return json.Unmarshal(b, (*plain)(p))
}

// onlyUnmarshals does not marshal.
type onlyUnmarshals struct{ X int }

func (o *onlyUnmarshals) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &o.X) }

// mixed marshals in one form and unmarshals in another.
type mixed struct{ X int }

func (mixed) MarshalJSON() ([]byte, error) { return []byte("1"), nil }
func (*mixed) UnmarshalText([]byte) error  { return nil }

// folded is equal to itself in other letters.
type folded struct{ text string }

func (f folded) Equal(g folded) bool           { return strings.EqualFold(f.text, g.text) }
func (f folded) MarshalText() ([]byte, error)  { return []byte(strings.ToLower(f.text)), nil }
func (f *folded) UnmarshalText(b []byte) error { f.text = string(b); return nil }

// sealed has nothing but what it hides.
type sealed struct{ text string }

func (sealed) MarshalText() ([]byte, error)    { return []byte("REDACTED"), nil }
func (s *sealed) UnmarshalText(b []byte) error { s.text = string(b); return nil }

type withOwnForms struct {
	metav1.TypeMeta
	Redacted  redacted
	Redacteds map[string]redacted `json:",omitempty"`
	Ptr       *redacted
	Picky     picky
	Pickies   []picky
	Unmarshal onlyUnmarshals
	Mixed     mixed
}

func (o *withOwnForms) DeepCopyObject() runtime.Object { c := *o; return &c }

type withPrivateForms struct {
	metav1.TypeMeta
	Sealed sealed
	Folded folded
}

func (o *withPrivateForms) DeepCopyObject() runtime.Object { c := *o; return &c }

type embedsItself struct {
	metav1.TypeMeta
	*embedsItself
	Name string
}

func (o *embedsItself) DeepCopyObject() runtime.Object { c := *o; return &c }

type oddKeys struct {
	metav1.TypeMeta
	M map[[2]string]string
	F func()
	C complex128
}

func (o *oddKeys) DeepCopyObject() runtime.Object { c := *o; return &c }

// TestTypesThatDoNotMarshalAllOfThemselves checks types whose own form leaves out a part
// of a value, or is not what they unmarshal: they come back as they were.
func TestTypesThatDoNotMarshalAllOfThemselves(t *testing.T) {
	hidden := redacted("pw")
	for _, obj := range []runtime.Object{
		&withOnlyMarshals{F: onlyMarshals{7}},
		&promoting{Quantity: resource.MustParse("2"), Lost: "not"},
		&withOwnForms{
			Redacted: "pw", Redacteds: map[string]redacted{"a": "pw", "b": "REDACTED"}, Ptr: &hidden,
			Picky: picky{"x"}, Pickies: []picky{{"x"}, {}}, Unmarshal: onlyUnmarshals{7}, Mixed: mixed{7},
		},
		&withOwnForms{},
		&withChan{}, &withInterface{}, &oddKeys{}, &embedsItself{Name: "n"},
	} {
		c := mustFor(t, obj)
		roundTrip(t, c, obj)
		data, err := c.Encode(obj)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := codec.DecodeAny(c.ID(), schema.GroupVersionKind{}, data); err != nil {
			t.Errorf("%T without its type: %v", obj, err)
		}
	}
	obj := &withPrivateForms{Folded: folded{"A"}, Sealed: sealed{"REDACTED"}}
	data, err := mustFor(t, obj).Encode(obj)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := mustFor(t, obj).Decode(data); err != nil || !got.(*withPrivateForms).Folded.Equal(obj.Folded) {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestValuesThatCannotBeEncoded checks that a value without a form is an error of its
// object, and not of its type.
func TestValuesThatCannotBeEncoded(t *testing.T) {
	for want, obj := range map[string]runtime.Object{
		"chan int":     &withChan{C: make(chan int)},
		"fmt.Stringer": &withInterface{S: time.Second},
		"map[":         &oddKeys{M: map[[2]string]string{{"a"}: "b"}},
		"func()":       &oddKeys{F: func() {}},
		"complex128":   &oddKeys{C: 1},
		"sealed":       &withPrivateForms{Sealed: sealed{"pw"}},
		"embedsItself": &embedsItself{embedsItself: &embedsItself{}},
	} {
		if _, err := mustFor(t, obj).Encode(obj); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%T: error %v does not name %s", obj, err, want)
		}
	}
	if _, err := codec.For(nil); err == nil {
		t.Error("nil has a codec")
	}
}

func TestPromotedProtobufIsNotUsed(t *testing.T) {
	obj := &named{Metadata: metav1.ObjectMeta{Name: "kept"}}
	c := mustFor(t, obj)
	if c.Name() != "msgpack" {
		t.Fatalf("codec is %s", c.Name())
	}
	roundTrip(t, c, obj)
}

func TestPanicsBecomeErrors(t *testing.T) {
	c := mustFor(t, &withPanicking{})
	if _, err := c.Encode(&withPanicking{}); err == nil || strings.Contains(err.Error(), "content") {
		t.Errorf("encode: %v", err)
	}
	if _, err := c.Decode([]byte("\x81\xa1f\x01")); err == nil || strings.Contains(err.Error(), "content") {
		t.Errorf("decode: %v", err)
	}
}

func TestWrongObject(t *testing.T) {
	for _, c := range []codec.Codec{
		mustFor(t, &corev1.Pod{}), mustMsgpack(t, &corev1.Pod{}), mustFor(t, &unstructured.Unstructured{}),
	} {
		for _, obj := range []runtime.Object{
			nil, &corev1.Node{}, (*corev1.Pod)(nil), (*unstructured.Unstructured)(nil),
		} {
			if _, err := c.Encode(obj); err == nil {
				t.Errorf("%s encodes %T", c.Name(), obj)
			}
		}
	}
}

func TestTypeMeta(t *testing.T) {
	for _, tm := range []metav1.TypeMeta{
		{}, {Kind: "Pod", APIVersion: "v1"}, {Kind: "Pod"}, {APIVersion: "a/b/c"}, {Kind: strings.Repeat("k", 300)},
	} {
		obj := &corev1.Pod{TypeMeta: tm, ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		for _, c := range []codec.Codec{mustFor(t, obj), mustMsgpack(t, obj)} {
			roundTrip(t, c, obj)
			data, err := c.Encode(obj)
			if err != nil {
				t.Fatal(err)
			}
			got, err := codec.DecodeAny(c.ID(), schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, data)
			if err != nil {
				t.Fatal(err)
			}
			want := obj.DeepCopy()
			if u, ok := got.(*unstructured.Unstructured); ok {
				if u.Object["kind"] == nil != (tm.Kind == "") || u.GetKind() != tm.Kind || u.GetAPIVersion() != tm.APIVersion {
					t.Errorf("type meta %v comes back in %v", tm, u.Object)
				}
			} else if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
	}
}

func TestNilAgainstEmpty(t *testing.T) {
	for _, obj := range []*corev1.Pod{
		{Spec: corev1.PodSpec{Containers: nil, Tolerations: nil}},
		{Spec: corev1.PodSpec{Containers: []corev1.Container{}, Tolerations: []corev1.Toleration{}}},
		{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}, Finalizers: []string{}}},
	} {
		roundTrip(t, mustMsgpack(t, obj), obj)
		asUnstructured(t, mustMsgpack(t, obj), obj)
		roundTrip(t, mustFor(t, obj), obj)
	}
}

func TestZeroQuantityBehindPointer(t *testing.T) {
	zero := resource.Quantity{}
	obj := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &zero}},
	}}}}
	for _, c := range []codec.Codec{mustFor(t, obj), mustMsgpack(t, obj)} {
		roundTrip(t, c, obj)
	}
}

func TestFieldsV1KeepsItsBytes(t *testing.T) {
	for _, raw := range []string{`{"f:b":{},"f:a":{".":{}}}`, `{}`, `{ "spaced" : 1 }`} {
		obj := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
			{FieldsV1: metav1.NewFieldsV1(raw)}, {FieldsV1: &metav1.FieldsV1{}}, {},
		}}}
		for _, c := range []codec.Codec{mustFor(t, obj), mustMsgpack(t, obj)} {
			roundTrip(t, c, obj)
		}
	}
}

func TestRawExtensionKeepsItsBytes(t *testing.T) {
	obj := &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(`{"z": 1.0, "a": 12345678901234567890}`)}}
	for _, c := range []codec.Codec{mustFor(t, obj), mustMsgpack(t, obj)} {
		roundTrip(t, c, obj)
	}
}

func TestIntOrString(t *testing.T) {
	for _, port := range []intstr.IntOrString{
		{}, intstr.FromInt32(-1), intstr.FromInt32(math.MaxInt32), intstr.FromString(""), intstr.FromString("80"), intstr.FromString("a\"b"),
	} {
		obj := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{TargetPort: port}}}}
		for _, c := range []codec.Codec{mustFor(t, obj), mustMsgpack(t, obj)} {
			roundTrip(t, c, obj)
		}
		asUnstructured(t, mustMsgpack(t, obj), obj)
	}
}

func TestMicroTime(t *testing.T) {
	for _, when := range []metav1.MicroTime{{}, metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC))} {
		obj := &corev1.Event{EventTime: when, Series: &corev1.EventSeries{LastObservedTime: when}}
		for _, c := range []codec.Codec{mustFor(t, obj), mustMsgpack(t, obj)} {
			roundTrip(t, c, obj)
		}
		asUnstructured(t, mustMsgpack(t, obj), obj)
	}
}

func TestUnstructuredValues(t *testing.T) {
	for name, x := range map[string]any{
		"nil": nil, "true": true, "string": "s", "bytes that are no text": "\xff\x00", "empty": "",
		"int": int64(1), "big": int64(1<<53 + 1), "biggest": int64(math.MaxInt64), "smallest": int64(math.MinInt64),
		"float": 1.0, "fraction": 0.1, "minus zero": math.Copysign(0, -1), "infinite": math.Inf(1), "large": 1e300,
		"empty list": []any{}, "nil list": []any(nil), "empty map": map[string]any{}, "nil map": map[string]any(nil),
		"nested": map[string]any{"": []any{[]any{map[string]any{"x": nil}}, 1.0, int64(1)}},
	} {
		t.Run(name, func(t *testing.T) {
			obj := &unstructured.Unstructured{Object: map[string]any{"x": x}}
			c := mustFor(t, obj)
			data, err := c.Encode(obj)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(obj, got) {
				t.Error(cmp.Diff(obj, got))
			}
		})
	}
	for _, obj := range []*unstructured.Unstructured{{}, {Object: map[string]any{}}} {
		c := mustFor(t, obj)
		data, _ := c.Encode(obj)
		if got, err := c.Decode(data); err != nil || !reflect.DeepEqual(obj, got) {
			t.Error(cmp.Diff(obj, got), err)
		}
	}
}

func TestUnstructuredRefusesOtherGoTypes(t *testing.T) {
	for _, x := range []any{1, int32(1), uint64(1), float32(1), []string{}, map[string]string{}, metav1.Time{}, json.Number("1")} {
		obj := &unstructured.Unstructured{Object: map[string]any{"x": []any{x}}}
		_, err := mustFor(t, obj).Encode(obj)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%T", x)) {
			t.Errorf("error %v does not name %T", err, x)
		}
	}
}

func TestMapOrderDoesNotMatter(t *testing.T) {
	typed := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
	loose := &unstructured.Unstructured{Object: map[string]any{}}
	for i := range 100 {
		typed.Labels[fmt.Sprint(i)] = "x"
		loose.Object[fmt.Sprint(i)] = "x"
	}
	for _, obj := range []runtime.Object{typed, loose} {
		for _, c := range []codec.Codec{mustFor(t, obj), mustMsgpack(t, obj)} {
			want, err := c.Encode(obj)
			if err != nil {
				t.Fatal(err)
			}
			for range 10 {
				if got, err := c.Encode(obj.DeepCopyObject()); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%s: other bytes: %v", c.Name(), err)
				}
			}
		}
	}
}

func TestForKind(t *testing.T) {
	for gvk, want := range map[schema.GroupVersionKind]string{
		{Version: "v1", Kind: "Pod"}:                       "protobuf",
		{Group: "apps", Version: "v1", Kind: "Deployment"}: "protobuf",
		{Group: "example.com", Version: "v1", Kind: "Odd"}: "msgpack",
	} {
		if got := codec.ForKind(gvk).Name(); got != want {
			t.Errorf("%s: got %s, want %s", gvk, got, want)
		}
	}
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Odd"}
	if codec.ForKind(gvk).Fingerprint() != mustFor(t, &unstructured.Unstructured{}).Fingerprint() {
		t.Error("an unknown kind is not unstructured")
	}
	for _, id := range []byte{0, codec.IDProtobuf, 3} {
		if _, err := codec.DecodeAny(id, gvk, nil); err == nil {
			t.Errorf("codec id %d of an unknown kind: no error", id)
		}
	}
}

func TestUnknownFieldsAreSkipped(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "n", "new": []any{int64(1)}}}}
	data, err := mustFor(t, u).Encode(u)
	if err != nil {
		t.Fatal(err)
	}
	got, err := mustFor(t, &odd{}).Decode(data)
	if err != nil || got.(*odd).ObjectMeta.Name != "n" {
		t.Errorf("got %v, error %v", got, err)
	}
}

func TestFingerprint(t *testing.T) {
	seen := map[string]string{}
	for _, example := range []runtime.Object{
		&corev1.Pod{}, &corev1.Node{}, &odd{}, &named{}, &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{},
	} {
		f, name := mustFor(t, example).Fingerprint(), fmt.Sprintf("%T", example)
		if f == "" || seen[f] != "" {
			t.Errorf("%s has fingerprint %q, as has %q", name, f, seen[f])
		}
		seen[f] = name
		if again := mustMsgpack(t, example.DeepCopyObject()).Fingerprint(); again != f {
			t.Errorf("%s: %s, then %s", name, f, again)
		}
	}
}

func TestFingerprintSeesFieldsAndTags(t *testing.T) {
	hash := codec.FingerprintOf
	base := hash(reflect.TypeFor[struct {
		A string `json:"a"`
	}]())
	for name, typ := range map[string]reflect.Type{
		"more": reflect.TypeFor[struct{ A, B string }](),
		"type": reflect.TypeFor[struct {
			A int `json:"a"`
		}](),
		"json": reflect.TypeFor[struct {
			A string `json:"b"`
		}](),
		"protobuf": reflect.TypeFor[struct {
			A string `json:"a" protobuf:"bytes,1"`
		}](),
		"nested": reflect.TypeFor[struct {
			A struct{ B string } `json:"a"`
		}](),
	} {
		if hash(typ) == base {
			t.Errorf("%s: same fingerprint", name)
		}
	}
	if base != hash(reflect.TypeFor[struct {
		A string `json:"a" doc:"x"`
		b int
	}]()) {
		t.Error("another tag and a private field change the fingerprint")
	}
}

func TestConcurrentUse(t *testing.T) {
	c, obj := mustFor(t, &odd{}), fullOdd()
	want, err := c.Encode(obj)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				got, err := c.Decode(want)
				if err != nil {
					t.Error(err)
					return
				}
				if data, err := c.Encode(got); err != nil || !bytes.Equal(data, want) {
					t.Errorf("other bytes: %v", err)
				}
			}
		})
	}
	wg.Wait()
}
