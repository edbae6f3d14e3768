package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/listers"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
)

const (
	hotKeys    = 100  // read repeatedly
	coldKeys   = 2000 // read once, if there are that many
	randomKeys = 1000 // the last of the coldKeys, which are read again in random order
)

// reader is a lister of client-go or ours.
type reader[T kruntime.Object] struct {
	get  func(namespace, name string) (T, error)
	list func(labels.Selector) ([]T, error)
}

func readerOf[T kruntime.Object](c *child) (reader[T], error) {
	if c.ours != nil {
		l, err := informer.NewLister[T](c.ours)
		if err != nil {
			return reader[T]{}, err
		}
		return reader[T]{l.Get, l.List}, nil
	}
	l := listers.New[T](c.inf.GetIndexer(), c.kind.gvr.GroupResource())
	return reader[T]{
		get:  func(namespace, name string) (T, error) { return listers.NewNamespaced(l, namespace).Get(name) },
		list: l.List,
	}, nil
}

// measureReads measures each kind of read in seconds per call.
func measureReads[T kruntime.Object](c *child) error {
	r, err := readerOf[T](c)
	if err != nil {
		return err
	}
	names, err := c.names()
	if err != nil {
		return err
	}
	budget := time.Duration(c.Seconds * float64(time.Second) / 10)
	hot, cold := names[:min(hotKeys, len(names)/2)], names[len(names)/2:]
	cold = cold[:min(coldKeys, len(cold))]
	get := func(names []cache.ObjectName) func() error {
		return func() error {
			for _, n := range names {
				if _, err := r.get(n.Namespace, n.Name); err != nil {
					return err
				}
			}
			return nil
		}
	}
	began := time.Now()
	if err := get(cold)(); err != nil {
		return err
	}
	c.figures["getCold"] = time.Since(began).Seconds() / float64(len(cold))
	rng := rand.New(rand.NewPCG(seed, 1))
	random := make([]cache.ObjectName, 10*randomKeys)
	for i := range random {
		random[i] = cold[len(cold)-1-rng.IntN(min(randomKeys, len(cold)))]
	}
	for _, read := range []struct {
		name  string
		names []cache.ObjectName
	}{{"getOne", slices.Repeat(hot[:1], hotKeys)}, {"getHot", hot}, {"getRandom", random}} {
		perNames, err := perCall(budget, get(read.names))
		if err != nil {
			return err
		}
		c.figures[read.name] = perNames / float64(len(read.names))
	}
	if err := c.measureLists(budget, names[0], func(s labels.Selector) (int, error) {
		found, err := r.list(s)
		return len(found), err
	}); err != nil {
		return err
	}
	if c.ours != nil {
		if reads := c.ours.Status().Reads; reads != nil {
			c.figures["longestRead"] = reads.LongestSeconds
		}
	}
	return c.steady() // includes the memory that the reads use
}

// measureLists measures the reads of many objects. list returns the number of objects
// that it found.
func (c *child) measureLists(budget time.Duration, one cache.ObjectName, list func(labels.Selector) (int, error)) error {
	selector, err := c.oneApp(one)
	if err != nil {
		return err
	}
	indexer := c.inf.GetIndexer()
	for _, read := range []struct {
		name string
		call func() error
	}{
		{"keys", func() error {
			_, err := indexer.IndexKeys(cache.NamespaceIndex, "default")
			return err
		}},
		{"byIndex", func() error {
			_, err := indexer.ByIndex(cache.NamespaceIndex, "default")
			return err
		}},
		{"byLabel", func() error {
			_, err := list(selector)
			return err
		}},
		{"listAll", func() error {
			found, err := list(labels.Everything())
			if err == nil && found != c.Objects {
				err = fmt.Errorf("a list has %d of %d objects", found, c.Objects)
			}
			return err
		}},
	} {
		if c.figures[read.name], err = perCall(budget, read.call); err != nil {
			return fmt.Errorf("%s: %w", read.name, err)
		}
	}
	return nil
}

// perCall returns the mean duration of a call. It makes as many calls as the budget
// allows, at least three, after one that is not counted.
func perCall(budget time.Duration, call func() error) (seconds float64, err error) {
	if err := call(); err != nil {
		return 0, err
	}
	began := time.Now()
	for n := 1; ; n++ {
		if err := call(); err != nil {
			return 0, err
		}
		if took := time.Since(began); took > budget && n >= 3 {
			return took.Seconds() / float64(n), nil
		}
	}
}

// names returns all names, shuffled with the same seed in each process.
func (c *child) names() ([]cache.ObjectName, error) {
	keys := c.inf.GetIndexer().ListKeys()
	if len(keys) != c.Objects {
		return nil, fmt.Errorf("%d keys of %d objects", len(keys), c.Objects)
	}
	slices.Sort(keys)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(keys), func(i, k int) { keys[i], keys[k] = keys[k], keys[i] })
	names := make([]cache.ObjectName, len(keys))
	for i, key := range keys {
		var err error
		if names[i], err = cache.ParseObjectName(key); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// oneApp returns a selector for the objects with the same first label as one object.
func (c *child) oneApp(name cache.ObjectName) (labels.Selector, error) {
	obj, _, err := c.inf.GetIndexer().GetByKey(name.String())
	if err != nil {
		return nil, err
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	all := accessor.GetLabels()
	first := slices.Min(slices.Collect(maps.Keys(all)))
	return labels.SelectorFromSet(labels.Set{first: all[first]}), nil
}
