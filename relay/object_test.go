package relay

import (
	"bytes"
	"errors"
	"io"
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
