package codec_test

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/informctl/informctl/codec"
)

// price has its own text form, of private fields of its package and of others.
type price struct {
	parts []part
	since time.Time
	limit *resource.Quantity
}

type part struct{ cents int64 }

func (price) MarshalText() ([]byte, error)  { return nil, nil }
func (*price) UnmarshalText(b []byte) error { return nil }

type priced struct {
	Part  part
	Price price
	last  part
}

var fieldName = regexp.MustCompile(`(?m)^field "(\w+)"`)

// TestFingerprintSeesWhatOwnFormsStore checks that private fields count where a type may
// store them in its own form, and nowhere else.
func TestFingerprintSeesWhatOwnFormsStore(t *testing.T) {
	for typ, want := range map[reflect.Type][]string{
		reflect.TypeFor[secretive]():           {"a", "b"},
		reflect.TypeFor[map[string]*sealed]():  {"text"},
		reflect.TypeFor[priced]():              {"Part", "Price", "parts", "cents", "since", "limit", "Format"},
		reflect.TypeFor[part]():                nil,
		reflect.TypeFor[onlyMarshals]():        {"X"},
		reflect.TypeFor[*metav1.Time]():        {"Time"},
		reflect.TypeFor[[]resource.Quantity](): {"Format"},
		reflect.TypeFor[*metav1.FieldsV1]():    nil,
	} {
		var got []string
		for _, m := range fieldName.FindAllStringSubmatch(codec.WalkOf(typ), -1) {
			got = append(got, m[1])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("fields of %s (-want +got):\n%s", typ, diff)
		}
	}
}

// TestFingerprintSeesHalfForms checks that a type that gains the method it lacked, and so
// is stored in its own form, is another type.
func TestFingerprintSeesHalfForms(t *testing.T) {
	for typ, want := range map[reflect.Type]string{
		reflect.TypeFor[secretive]():      "json true text false",
		reflect.TypeFor[onlyMarshals]():   "json true text false half json",
		reflect.TypeFor[onlyUnmarshals](): "json false text false half json",
		reflect.TypeFor[mixed]():          "json true text false half json half text",
	} {
		if first, _, _ := strings.Cut(codec.WalkOf(typ), "\n"); !strings.HasSuffix(first, " struct "+want) {
			t.Errorf("got %s, want %s", first, want)
		}
	}
}

type withOneof struct {
	Spec structpb.Value
}

// embedsMessage has no message to ask.
type embedsMessage struct{ protoreflect.ProtoMessage }

// TestFingerprintSeesOneofs checks that what the oneofs of protobuf messages may contain
// counts: their Go types are interfaces.
func TestFingerprintSeesOneofs(t *testing.T) {
	walk := codec.WalkOf(reflect.TypeFor[withOneof]())
	for _, want := range []string{`oneof "kind" "string_value" 3 string`, `oneof "kind" "list_value" 6 message`, `"ListValue" struct`, `field "Values"`} {
		if !strings.Contains(walk, want) {
			t.Errorf("no %s in:\n%s", want, walk)
		}
	}
	if codec.FingerprintOf(reflect.TypeFor[embedsMessage]()) == "" {
		t.Error("an embedded message that is nil has no fingerprint")
	}
}
