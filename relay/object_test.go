package relay

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
)

// panics is a Reader that cannot decode.
type panics struct{ store.Reader }

func (panics) Decode(store.Entry) (runtime.Object, error) { panic("decode") }

// TestPanicOfAnother has an object panic when it is decoded or encoded for one watch: the
// others are told so, and not that it is empty.
func TestPanicOfAnother(t *testing.T) {
	decode := &object{of: &served{Collection: Collection{Reader: panics{}}}}
	var out bytes.Buffer
	encode := &shared{object: &object{}}
	for name, call := range map[string]func() error{
		"decoded": func() error { _, err := decode.decoded(); return err },
		"encoded": func() error {
			return encode.CacheEncode("json", func(runtime.Object, io.Writer) error { panic("encode") }, &out)
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s for the first time, it does not panic", name)
				}
			}()
			_ = call()
		}()
		if err := call(); !errors.Is(err, errPanic) || out.Len() > 0 {
			t.Errorf("%s again, the error is %v with %d bytes, want %v", name, err, out.Len(), errPanic)
		}
	}
}

// damaged is a Reader whose objects cannot be decoded.
type damaged struct{ store.Reader }

func (damaged) Decode(store.Entry) (runtime.Object, error) { return nil, errors.New("damaged") }

// TestWatchOfDamaged watches an object that cannot be decoded: the client is told so in
// all forms that need that, and does not just see the end.
func TestWatchOfDamaged(t *testing.T) {
	from := file(t, 1)
	from[0].Reader = damaged{from[0].Reader}
	s, err := New(from, Options{Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, accept := range []string{
		runtime.ContentTypeJSON, "application/json;as=Table;g=meta.k8s.io;v=v1",
		"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
	} {
		w := get(t, s, "/api/v1/pods?watch=1&timeoutSeconds=60&resourceVersion=0", accept)
		body := w.Body.String()
		if w.Code != http.StatusOK || !strings.Contains(body, "ERROR") || !strings.Contains(body, "damaged") {
			t.Errorf("%s: %d, want an ERROR event that says why: %q", accept, w.Code, body)
		}
	}
}
