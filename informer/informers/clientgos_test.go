package informers

import (
	"testing"

	"k8s.io/client-go/tools/cache"
)

// TestNotClientGos checks that an informer of another kind is left as it is.
func TestNotClientGos(t *testing.T) {
	type other struct{ cache.SharedIndexInformer }
	for _, inf := range []cache.SharedIndexInformer{other{}, &other{}, cache.NewSharedIndexInformer(&cache.ListWatch{}, nil, 0, nil)} {
		if c, ok := contentOf(inf); ok {
			t.Errorf("%T: found %+v", inf, c)
		}
	}
}
