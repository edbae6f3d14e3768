package durable_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/durable"
)

// TestObjectNames checks that no name is read back as another one.
func TestObjectNames(t *testing.T) {
	for n, isName := range map[cache.ObjectName]bool{
		{}:                                 true,
		{Name: "a"}:                        true,
		{Namespace: "ns"}:                  true,
		{Namespace: "ns", Name: "a"}:       true,
		{Name: "bucket/a"}:                 false,
		{Name: "a/b/c"}:                    false,
		{Name: "/"}:                        false,
		{Name: "/a"}:                       false,
		{Namespace: "ns", Name: "a/b"}:     false,
		{Namespace: "ns/other", Name: "a"}: false,
		{Namespace: "/"}:                   false,
	} {
		b, err := durable.ObjectNames.Encode(n)
		if (err == nil) != isName {
			t.Errorf("%#v: encoded as %q, %v", n, b, err)
		}
		if err != nil {
			continue
		}
		if got, err := durable.ObjectNames.Decode(b); err != nil || got != n {
			t.Errorf("%#v comes back from %q as %#v, %v", n, b, got, err)
		}
	}
}

// silent is a codec that returns nothing for a key.
type silent struct {
	durable.Codec[cache.ObjectName]
}

func (s silent) Encode(n cache.ObjectName) ([]byte, error) {
	if n.Name == "silent" {
		return nil, nil
	}
	return s.Codec.Encode(n)
}

// TestErrorOfCodec checks that a key that cannot be written is named with the cause, and
// not each time that it is added.
func TestErrorOfCodec(t *testing.T) {
	for name, cause := range map[string]string{"silent": "the codec has returned no bytes", "a/b": "want"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				var m messages
				w.logger, w.codec = m.logger(), silent{durable.ObjectNames}
				l := w.start(1).begin()
				for _, n := range []int{1, 1, 0} { // the third one is too early
					for range 5 {
						l.queue.Add(cache.ObjectName{Namespace: "default", Name: name})
						w.pass(time.Second)
					}
					got := m.with("A key of the queue cannot be written")
					if len(got) != n || n > 0 && (!strings.Contains(got[0], cause) || !strings.Contains(got[0], "default/"+name)) {
						t.Errorf("logged %q, want %d times the key and %q", got, n, cause)
					}
					w.pass(time.Minute)
				}
				l.end()
			})
		})
	}
}
