package storetest

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
)

var payloadCases = []testCase{
	{"Selected", testPayloadSelected},
	{"Followed", testPayloadFollowed},
	{"Errors", testPayloadErrors},
}

// payloader returns the store as a Payloader, or skips the test.
func (h *harness) payloader() store.Payloader {
	h.Helper()
	p, ok := h.Store.(store.Payloader)
	if !ok {
		h.Skip("the backend keeps no object encoded")
	}
	return p
}

// checkPayload reports an entry whose payload is not the encoded object.
func checkPayload(t reporter, s store.Store, e store.Entry, want runtime.Object) {
	t.Helper()
	p := s.(store.Payloader)
	before := []byte("before")
	out, id, err := p.AppendPayload(slices.Clone(before), e)
	must(t, err)
	size, sized, err := p.PayloadSize(e)
	must(t, err)
	if sized != id {
		t.Errorf("AppendPayload of %.20s has codec %d, PayloadSize %d", e.Key, id, sized)
	}
	if size != len(out)-len(before) || string(out[:len(before)]) != string(before) {
		t.Errorf("AppendPayload of %.20s returned %d bytes behind %q, PayloadSize %d", e.Key, len(out)-len(before), out[:len(before)], size)
	}
	c, err := codec.For(&corev1.ConfigMap{})
	must(t, err)
	if id != c.ID() {
		t.Errorf("codec %d, want %d", id, c.ID())
	}
	obj, err := c.Decode(out[len(before):])
	must(t, err)
	same(t, "the object of a payload", obj, want)
}

// testPayloadSelected checks the payloads of objects of all sizes that are pending,
// written, compressed and decoded, now and at a place.
func testPayloadSelected(h *harness) {
	h.payloader()
	objects := map[string]*corev1.ConfigMap{}
	var list []runtime.Object
	for i := range 100 {
		cm := configMap("a/"+strconv.Itoa(i), "1", "red")
		cm.Data["text"] = string(make([]byte, 1<<(i%18)))
		objects[keyOf(h, cm)] = cm
		list = append(list, cm)
	}
	p := h.logged(list...)
	check := func(at store.Place) {
		h.Helper()
		for _, q := range []store.Query{{}, {Namespace: "a"}, {Index: "words", Values: []string{"red"}}, {Keys: []string{"a/1", "a/2", "a/99"}}} {
			q.At = at
			if q.Index != "" && !at.IsZero() {
				continue // this index is in memory only
			}
			q.Encoded = true
			entries, err := h.Select(q)
			must(h, err)
			if len(entries) != len(objects) && q.Keys == nil || len(entries) == 0 {
				h.Errorf("%d entries of %+v", len(entries), q)
			}
			for _, e := range entries {
				if e.Raw == nil || e.Object != nil {
					h.Fatalf("the entry of %s is not encoded", e.Key)
				}
				checkPayload(h, h.Store, e, objects[e.Key])
			}
		}
	}
	check(store.Place{})
	_ = h.List() // caches the objects
	check(store.Place{})
	check(p)
	changed := configMap("a/1", "11", "red")
	h.apply("11", put(changed))
	check(p)
	objects["a/1"] = changed
	check(store.Place{})
	h.reopen()
	check(store.Place{})
}

// testPayloadFollowed checks the payloads of the states in the log.
func testPayloadFollowed(h *harness) {
	h.payloader()
	p := h.logged(many(100, "1", "red")...)
	was, is := many(1, "1", "red")[0], many(1, "11", "blue")[0]
	h.apply("11", put(is))
	events, err := followed(h.Store, h.flushed(p))
	must(h, err)
	h.reopen()
	if len(events) != 2 {
		h.Fatalf("%d events", len(events))
	}
	checkPayload(h, h.Store, events[0].Old.Entry, was)
	checkPayload(h, h.Store, events[0].New.Entry, is)
}

// flushed returns p after everything is written.
func (h *harness) flushed(p store.Place) store.Place {
	h.Helper()
	must(h, h.Flush(h.Context()))
	return p
}

// testPayloadErrors checks entries without an encoded object and with a damaged one.
func testPayloadErrors(h *harness) {
	p := h.payloader()
	for _, e := range []store.Entry{{Key: "a/one"}, {Key: "a/one", Object: configMap("a/one", "1", "red")}, {Key: "a/one", Raw: []byte{1}}} {
		out, _, err := p.AppendPayload([]byte("before"), e)
		if err == nil || string(out) != "before" {
			h.Errorf("AppendPayload(%+v) = %q, %v", e, out, err)
		}
		if _, _, err := p.PayloadSize(e); err == nil {
			h.Errorf("PayloadSize(%+v) returned no error", e)
		}
	}
}
