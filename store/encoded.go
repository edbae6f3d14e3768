package store

import (
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// EncodedObject is an object as the codec of a scope encodes it. It is a runtime.Object,
// so that it can go through a queue and to Relist.Add of a Store that is an
// EncodedTaker, but readers and handlers never receive it.
type EncodedObject struct {
	metav1.TypeMeta
	metav1.ObjectMeta        // only name, namespace, UID and resource version
	Data              []byte // must not be changed
	Cell              *Cell  // for the decoded object
}

// DeepCopyObject implements runtime.Object. The copy shares Data and Cell.
func (o *EncodedObject) DeepCopyObject() runtime.Object {
	c := *o
	return &c
}

// EncodedTaker is implemented by Stores that keep objects as their codec encodes them.
// Others need decoded objects.
type EncodedTaker interface {
	// EncodedEntry returns the entry of an object. The error is an *ObjectError.
	EncodedEntry(*EncodedObject) (Entry, error)
}

// Cell contains the decoded object of one state of an object, for all who hold that
// state: it is decoded when one of them first needs it. It is safe for concurrent use.
type Cell struct {
	mu      sync.Mutex // held while the object is decoded
	decoded atomic.Pointer[decoded]
	done    func(runtime.Object, error) // of a shared Cell
}

type decoded struct {
	object runtime.Object
	err    error
}

// NewCell returns a Cell. obj is nil if the object is not decoded yet.
func NewCell(obj runtime.Object) *Cell {
	c := &Cell{}
	if obj != nil {
		c.decoded.Store(&decoded{object: obj})
	}
	return c
}

// NewSharedCell returns a Cell for the Raw of an Entry that is in memory with others, so
// that the decoded object must not keep it. The first Decode calls done with its result.
func NewSharedCell(done func(runtime.Object, error)) *Cell { return &Cell{done: done} }

// IsShared reports whether the Cell is from NewSharedCell.
func (c *Cell) IsShared() bool { return c.done != nil }

// Object returns the object if it is decoded.
func (c *Cell) Object() (obj runtime.Object, ok bool) {
	d := c.decoded.Load()
	if d == nil || d.err != nil {
		return nil, false
	}
	return d.object, true
}

// Decode returns the object. The first call decodes it; other calls wait for that.
func (c *Cell) Decode(decode func() (runtime.Object, error)) (runtime.Object, error) {
	if d := c.decoded.Load(); d != nil {
		return d.object, d.err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.decoded.Load()
	if d == nil {
		d = &decoded{}
		d.object, d.err = decode()
		c.decoded.Store(d)
		if c.done != nil {
			c.done(d.object, d.err)
		}
	}
	return d.object, d.err
}
