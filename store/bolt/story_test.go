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

// A story is what a process does to its file while faults are made. It knows at
// every moment what the scope must hold.
type story struct {
	script  script
	batches int           // that are there when it begins
	indexes []index.Index // that there are then; nil: all
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
	// written is called when the state that now is has been written, or was
	// written before.
	written func(state string) error
	// fault reports whether an error is one that was made, so that who met it
	// tries again.
	fault func(error) bool
}

func (t *teller) state() string { return describeObjects(t.rv, t.objects) }

// again runs what may fail by a fault until it does not.
func (t *teller) again(fn func() error) error {
	for tries := 0; ; tries++ {
		if err := fn(); err == nil || t.fault == nil || !t.fault(err) || tries == 20 {
			return err
		}
	}
}

// is reads everything: reads do not know of faults.
func (t *teller) is() error {
	got, err := describe(t.s, t.script)
	if err == nil && got != t.state() {
		err = fmt.Errorf("state is\n%swant\n%s", got, t.state())
	}
	return err
}

// settle waits until all is written, and reads meanwhile.
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
	if err != nil {
		return fmt.Errorf("after it is written: %w", err)
	}
	return t.written(t.state())
}

// apply applies a batch to the store and to what the scope must hold.
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

// open opens the scope, again if there was a store.
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

// begin opens the scope and brings it to where the story begins, if it is not.
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
	// Whether or not it could be written: this is what the store has from here on.
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

// tellFirstList begins a first list twice: the one that does not end leaves
// nothing.
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

// tellIndex opens the scope with one more index, which is made of what is stored.
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
