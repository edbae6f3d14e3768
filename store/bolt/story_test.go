package bolt_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// A story is a sequence of operations of a process on its file while faults are injected.
// It knows at every moment what the scope must contain.
type story struct {
	script  script
	batches int           // batches in the file at the beginning
	indexes []index.Index // indexes at the beginning; nil means all
	tell    func(*teller) error
}

var stories = map[string]story{
	"steady":     {script: small, batches: 1, tell: tellSteady},
	"relist":     {script: small, batches: 4, tell: tellRelist},
	"first list": {script: script{keys: 100, pad: 150}, tell: tellFirstList},
	"index":      {script: script{keys: 270, pad: 10}, batches: 2, indexes: []index.Index{index.Namespace()}, tell: tellIndex},
	"drop":       {script: small, batches: 4, tell: tellDrop},
}

// teller runs a story.
type teller struct {
	script  script
	db      *bolt.DB
	s       store.Store
	rv      string
	objects map[string]*corev1.ConfigMap
	// written is called when the current state has been written or was already written
	// before.
	written func(state string) error
	// fault reports whether an error was injected, so that the operation is tried again.
	fault func(error) bool
}

func (t *teller) state() string { return describeObjects(t.rv, t.objects) }

// again repeats fn while it fails because of an injected fault.
func (t *teller) again(fn func() error) error {
	for tries := 0; ; tries++ {
		if err := fn(); err == nil || t.fault == nil || !t.fault(err) || tries == 20 {
			return err
		}
	}
}

// is reads everything and compares it. Reads are not affected by faults.
func (t *teller) is() error {
	got, err := describe(t.s, t.script)
	if err == nil && got != t.state() {
		err = fmt.Errorf("state is\n%swant\n%s", got, t.state())
	}
	return err
}

// settle waits until everything is written, and reads in the meantime.
func (t *teller) settle() error {
	flushed := make(chan error, 1)
	go func() { flushed <- t.s.Flush(context.TODO()) }()
	if err := t.is(); err != nil {
		return fmt.Errorf("while it is written: %w", errors.Join(err, <-flushed))
	}
	err := <-flushed
	if err == nil {
		err = t.is()
	}
	if err == nil {
		err = logAddsUp(t.s)
	}
	if err != nil {
		return fmt.Errorf("after it is written: %w", err)
	}
	return t.written(t.state())
}

// apply applies a batch to the store and to the expected state.
func (t *teller) apply(b store.Batch) error {
	if err := t.s.Apply(b); err != nil {
		return err
	}
	t.objects = maps.Clone(t.objects)
	for _, c := range b.Changes {
		if c.IsDeletion() {
			delete(t.objects, c.Key)
			continue
		}
		obj, err := t.s.Decode(c.Entry())
		if err != nil {
			return err
		}
		cm := obj.(*corev1.ConfigMap)
		t.objects[cm.Namespace+"/"+cm.Name] = cm
	}
	if b.RV != "" {
		t.rv = b.RV
	}
	return t.settle()
}

func (t *teller) batches(from, last int) error {
	for n := from; n <= last; n++ {
		if err := t.apply(t.script.batch(n)); err != nil {
			return fmt.Errorf("batch %d: %w", n, err)
		}
	}
	return nil
}

// open opens the scope. If it is open already, open closes it first.
func (t *teller) open(opts store.Options) error {
	return t.again(func() (err error) {
		if t.s != nil {
			if err := t.s.Close(); err != nil {
				return err
			}
		}
		t.s, err = t.db.Open(scriptScope(), opts)
		return err
	})
}

func (t *teller) parts(r store.Relist, rv string) error {
	for b, err := range r.Parts(rv) {
		if err == nil {
			err = t.apply(b)
		}
		if err != nil {
			return err
		}
	}
	if err := t.again(r.Close); err != nil {
		return err
	}
	return t.settle()
}

// begin opens the scope and brings it to the state at the beginning of the story.
func (st story) begin(t *teller) error {
	opts := scriptOptions()
	if st.indexes != nil {
		opts.Indexes = st.indexes
	}
	if err := t.open(opts); err != nil {
		return err
	}
	t.script, t.objects = st.script, st.script.state(st.batches)
	if st.batches == 0 {
		return nil
	}
	t.rv = strconv.Itoa(st.batches)
	if t.s.Checkpoint().RV != t.rv {
		for n := 1; n <= st.batches; n++ {
			if err := t.s.Apply(st.script.batch(n)); err != nil {
				return err
			}
		}
	}
	return t.s.Flush(context.TODO())
}

func tellSteady(t *teller) error { return t.batches(2, 6) }

func tellRelist(t *teller) error {
	const last = 30
	// Whether it was written or not, this is the store's checkpoint from here on.
	if err := t.s.Invalidate(context.TODO(), "a story"); err != nil && (t.fault == nil || !t.fault(err)) {
		return err
	}
	t.rv = ""
	if err := t.settle(); err != nil {
		return err
	}
	var r store.Relist
	err := t.again(func() (err error) {
		r, err = relist(t.s, t.script, last)
		return err
	})
	if err != nil {
		return err
	}
	if err := t.settle(); err != nil {
		return err
	}
	if err := t.parts(r, strconv.Itoa(last)); err != nil {
		return err
	}
	if t.state() != t.script.want(last) {
		return errors.New("the relist did not make of the objects what the list had")
	}
	return nil
}

// tellFirstList begins a first list twice. The first one does not end and must leave
// nothing behind.
func tellFirstList(t *teller) error {
	for _, ends := range []bool{false, true} {
		var r store.Relist
		err := t.again(func() (err error) {
			r, err = t.s.Relist()
			return err
		})
		if err != nil {
			return err
		}
		bolt.SetRelistLimit(r, 32<<10)
		for i := range t.script.keys {
			if err := r.Add(t.script.object(i, 1)); err != nil {
				return err
			}
		}
		if !ends {
			if err := t.again(r.Close); err != nil {
				return err
			}
			if err := t.settle(); err != nil {
				return err
			}
			continue
		}
		t.objects = t.script.state(1) // with the resource version, in one part
		if err := t.parts(r, "1"); err != nil {
			return err
		}
	}
	return nil
}

// tellIndex opens the scope with one more index, which is built from the stored objects.
func tellIndex(t *teller) error {
	if err := t.open(scriptOptions()); err != nil {
		return err
	}
	return t.settle()
}

func tellDrop(t *teller) error {
	opts := scriptOptions()
	opts.Fresh = true
	if err := t.open(opts); err != nil {
		return err
	}
	t.rv, t.objects = "", map[string]*corev1.ConfigMap{}
	if err := t.settle(); err != nil {
		return err
	}
	return t.batches(1, 2)
}
