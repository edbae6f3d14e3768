package protoplan

import (
	"hash/maphash"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/resource"
)

// parsed is a quantity that was parsed before: an object has several, and a collection
// has few different ones. It is immutable, because a resource.Quantity changes when its
// text is first asked for.
type parsed struct {
	text        string
	quantity    resource.Quantity
	isCanonical bool // its text is what generated code writes
}

const (
	parsedSlots = 1024
	maxText     = 32 // bytes of a text that is remembered
)

var (
	parsedSeed = maphash.MakeSeed()
	parsedAt   [parsedSlots]atomic.Pointer[parsed]
)

// parseQuantity returns the quantity in the message of a resource.Quantity.
func parseQuantity(message []byte) (q resource.Quantity, isCanonical, ok bool) {
	text, rest, ok := cutValue(1, message)
	if !ok || len(rest) > 0 {
		return q, false, false
	}
	slot := &parsedAt[maphash.Bytes(parsedSeed, text)%parsedSlots]
	if p := slot.Load(); p != nil && p.text == string(text) {
		return p.quantity.DeepCopy(), p.isCanonical, true
	}
	p := &parsed{text: string(text)}
	var err error
	if p.quantity, err = resource.ParseQuantity(p.text); err != nil {
		return q, false, false
	}
	q = p.quantity.DeepCopy()
	p.isCanonical = q.String() == p.text
	if len(text) <= maxText {
		slot.Store(p)
	}
	return p.quantity.DeepCopy(), p.isCanonical, true
}
