package bolt_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// register models a key as the number of its last write, 0 if it does not exist.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) (byKey [][]porcupine.Operation) {
		keys := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(access).key
			keys[key] = append(keys[key], op)
		}
		for _, ops := range keys {
			byKey = append(byKey, ops)
		}
		return byKey
	},
	Init: func() any { return 0 },
	Step: func(state, input, output any) (bool, any) {
		if a := input.(access); a.write {
			return true, a.value
		}
		return output == state, state
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v is %v", input, output) },
}

type access struct {
	key   string
	write bool
	value int // the value to write; 0 deletes
}

// client is one goroutine of TestLinearizable.
type client struct {
	id      int
	s       store.Store
	rng     *rand.Rand
	start   time.Time
	numbers *atomic.Int64
	history []porcupine.Operation
}

const linearKeys = 3

// TestLinearizable writes and reads some keys in several goroutines while writes to the
// file sometimes fail. The operations must be linearizable: there must be a sequential
// order with the same results in which each takes effect between its call and its return.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	rng, _ := seeded(t)
	for name, decoded := range map[string]int64{"decoded objects are kept": 0, "none are": 1} {
		t.Run(name, func(t *testing.T) {
			db, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{CommitInterval: time.Millisecond})
			must(t, err)
			defer func() { must(t, db.Close()) }()
			opts := scriptOptions()
			opts.DecodedBytes = decoded
			s, err := db.Open(scriptScope(), opts)
			must(t, err)
			var numbers, faults atomic.Int64
			var wg sync.WaitGroup
			clients := make([]*client, 6)
			errs := make([]error, len(clients))
			start := time.Now()
			for i := range clients {
				c := &client{id: i, s: s, rng: rand.New(rand.NewPCG(rng.Uint64(), 0)), start: start, numbers: &numbers}
				clients[i] = c
				wg.Go(func() {
					for n := range 1500 / fewer {
						if i == 0 && n%20 == 0 {
							failWrite(db, 1+c.rng.IntN(8), &faults)
							_ = s.Flush(t.Context()) // even a slow disk is written to
						}
						if errs[i] = c.step(); errs[i] != nil {
							return
						}
					}
				})
			}
			wg.Wait()
			var history []porcupine.Operation
			for i, c := range clients {
				must(t, errs[i])
				history = append(history, c.history...)
			}
			result, _ := porcupine.CheckOperationsVerbose(register, history, 30*time.Second)
			t.Logf("%d operations, %d writes to the file failed: %s", len(history), faults.Load(), result)
			switch {
			case result == porcupine.Unknown:
				t.Logf("NOT DECIDED within 30 s: a history of this shape takes too long to check")
			case result != porcupine.Ok:
				t.Error("the history is not linearizable")
			case faults.Load() == 0:
				t.Error("no write failed")
			}
		})
	}
}

// failWrite makes the n-th write to the file fail.
func failWrite(db *bolt.DB, n int, faults *atomic.Int64) {
	bolt.HookWrites(db, func(next bolt.WriteAt) bolt.WriteAt {
		return func(b []byte, off int64) (int, error) {
			if n--; n == 0 {
				faults.Add(1)
				return 0, errFault
			}
			return next(b, off)
		}
	})
}

// step executes one operation, which may involve several keys.
func (c *client) step() error {
	i := c.rng.IntN(linearKeys)
	key := small.key(i)
	call := time.Since(c.start).Nanoseconds()
	switch c.rng.IntN(7) {
	case 0, 1:
		n := int(c.numbers.Add(1))
		if err := c.s.Apply(store.Batch{Changes: []store.Change{{Object: small.object(i, n)}}}); err != nil {
			return err
		}
		c.saw(access{key, true, n}, n, call)
	case 2:
		if err := c.s.Apply(store.Batch{Changes: []store.Change{{Key: key}}}); err != nil {
			return err
		}
		c.saw(access{key, true, 0}, 0, call)
	case 3: // two keys in one batch
		n := int(c.numbers.Add(2))
		other := (i + 1) % linearKeys
		b := store.Batch{Changes: []store.Change{{Object: small.object(i, n-1)}, {Object: small.object(other, n)}}}
		if err := c.s.Apply(b); err != nil {
			return err
		}
		c.saw(access{key, true, n - 1}, 0, call)
		c.saw(access{small.key(other), true, n}, 0, call)
	case 4:
		x := store.Indexer(c.s)
		c.sawAll(x.List(), call)
		return x.Err()
	case 5:
		entries, err := c.s.Select(store.Query{})
		if err != nil {
			return err
		}
		objects, err := store.DecodeAll[runtime.Object](c.s, entries)
		if err != nil {
			return err
		}
		all := make([]any, len(objects))
		for i, obj := range objects {
			all[i] = obj
		}
		c.sawAll(all, call)
	default:
		obj, _, err := store.Indexer(c.s).GetByKey(key)
		if err != nil {
			return err
		}
		c.saw(access{key: key}, versionIn(obj), call)
	}
	return nil
}

func (c *client) sawAll(objects []any, call int64) {
	got := map[string]int{}
	for _, obj := range objects {
		cm := obj.(*corev1.ConfigMap)
		got[cm.Namespace+"/"+cm.Name] = versionIn(obj)
	}
	for i := range linearKeys {
		c.saw(access{key: small.key(i)}, got[small.key(i)], call)
	}
}

func (c *client) saw(a access, output int, call int64) {
	c.history = append(c.history, porcupine.Operation{
		ClientId: c.id, Input: a, Output: output, Call: call, Return: time.Since(c.start).Nanoseconds(),
	})
}

// versionIn returns the number of the write that made an object, 0 if there is no object.
func versionIn(obj any) int {
	cm, ok := obj.(*corev1.ConfigMap)
	if !ok || cm == nil {
		return 0
	}
	var n int
	_, _ = fmt.Sscan(cm.ResourceVersion, &n)
	return n
}
