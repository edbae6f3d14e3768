package objcache_test

import (
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/objcache"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

func open(t *testing.T, bytes int64) *objcache.Cache {
	t.Helper()
	c, err := objcache.New(store.Options{DecodedBytes: bytes})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func value(name string) objcache.Value {
	return objcache.Value{
		Object:  &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
		Encoded: 100, Hash: []byte(name),
	}
}

// TestOffer checks that an object is kept only if nothing has happened to it since its
// reader got a ticket.
func TestOffer(t *testing.T) {
	for _, bytes := range []int64{1 << 20, -1} {
		for name, event := range map[string]struct {
			do   func(c *objcache.Cache)
			want string // "" for none
		}{
			"nothing":   {func(*objcache.Cache) {}, "read"},
			"set":       {func(c *objcache.Cache) { c.Set("a", value("new")) }, "new"},
			"dropped":   {func(c *objcache.Cache) { c.Drop("a") }, ""},
			"forgotten": {func(c *objcache.Cache) { c.Forget() }, ""},
		} {
			t.Run(fmt.Sprint(name, " ", bytes), func(t *testing.T) {
				for _, many := range []bool{false, true} {
					c := open(t, bytes)
					ticket := c.Ticket("a")
					if many {
						ticket = c.Tickets().Of("a")
					}
					event.do(c)
					c.Offer("a", value("read"), ticket)
					v, ok := c.Get("a")
					if ok != (event.want != "") || ok && string(v.Hash) != event.want {
						t.Errorf("%q, %t; want %q", v.Hash, ok, event.want)
					}
				}
			})
		}
	}
}

// TestBytes checks that the bytes of all objects that are gone are taken off, however
// they have gone.
func TestBytes(t *testing.T) {
	for _, bytes := range []int64{4 << 10, -1} {
		c := open(t, bytes)
		for i := range 100 {
			c.Set(fmt.Sprint(i%20), value("v"))
		}
		if n := c.Bytes(); n <= 0 || bytes > 0 && n > bytes {
			t.Errorf("budget %d: %d bytes", bytes, n)
		}
		for i := range 10 {
			c.Drop(fmt.Sprint(i))
		}
		if c.Forget(); c.Bytes() != 0 {
			t.Errorf("budget %d: %d bytes of nothing", bytes, c.Bytes())
		}
	}
}

// TestShared checks that scopes of a group have one budget, and that one leaves the
// objects of the others alone.
func TestShared(t *testing.T) {
	opts := store.Options{DecodedBytes: 1 << 20, DecodedGroup: t}
	a, err := objcache.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	b, err := objcache.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	a.Set("x", value("a"))
	b.Set("x", value("b"))
	if v, ok := a.Get("x"); !ok || string(v.Hash) != "a" {
		t.Errorf("got %q, %t", v.Hash, ok)
	}
	a.Forget()
	if v, ok := b.Get("x"); !ok || string(v.Hash) != "b" || a.Bytes() != 0 || b.Bytes() == 0 {
		t.Errorf("after the other was emptied: %q, %t, %d and %d bytes", v.Hash, ok, a.Bytes(), b.Bytes())
	}
}

// TestAll checks that all objects are returned only if the cache has all of them, and as
// of one moment.
func TestAll(t *testing.T) {
	c := open(t, -1)
	c.Set("a", value("a"))
	if _, ok := c.All(2); ok {
		t.Error("one object is two")
	}
	c.Set("b", value("b"))
	all, ok := c.All(2)
	if c.Drop("a"); !ok || all.Len() != 2 {
		t.Errorf("%d objects, %t", all.Len(), ok)
	}
	if _, ok := open(t, 1<<20).All(0); ok {
		t.Error("a cache with a budget has all")
	}
}

// TestReadersBesideWriter checks that no reader finds an older state than one that was
// set, or dropped, before it began.
func TestReadersBesideWriter(t *testing.T) {
	for _, bytes := range []int64{1 << 20, -1} {
		c := open(t, bytes)
		var set atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				var last int64
				for set.Load() < 20_000 {
					before := max(last, set.Load())
					v, ok := c.Get("a")
					n, _ := strconv.ParseInt(string(v.Hash), 10, 64)
					if ok && n < before {
						t.Errorf("budget %d: state %d, %d was set or read before", bytes, n, before)
						return
					}
					last = max(last, n)
				}
			})
		}
		var mu sync.Mutex // as the caller's
		for i := range int64(20_000) {
			mu.Lock()
			if i%7 == 0 {
				c.Drop("a")
			}
			c.Set("a", value(strconv.FormatInt(i+1, 10)))
			mu.Unlock()
			set.Store(i + 1)
		}
		wg.Wait()
	}
}

// TestEvicted checks that an object that was read often is gone with its place in the
// budget.
func TestEvicted(t *testing.T) {
	c := open(t, 4<<10)
	c.Set("a", value("a"))
	for range 100 {
		if _, ok := c.Get("a"); !ok {
			t.Fatal("not kept")
		}
	}
	for i := 0; ; i++ {
		if _, ok := c.Peek("a"); !ok {
			break
		}
		key := fmt.Sprint(i)
		c.Set(key, value(key))
		for range 100 {
			c.Get(key)
		}
	}
	if _, ok := c.Get("a"); ok {
		t.Error("an object that the budget does not have is found")
	}
}

// TestLend checks that readers of one state share the object, that a reader of another
// state does not get it, and that nothing keeps it when nobody holds it any more.
func TestLend(t *testing.T) {
	c := open(t, 1)
	raw := record.AppendRaw(nil, 1, 0, make([]byte, 2<<20))
	lend := func(hash string) store.Entry {
		entries := []store.Entry{{Key: "a", Raw: raw}}
		c.Lend(entries, [][]byte{[]byte(hash)})
		return entries[0]
	}
	decode := func(e store.Entry, name string) kruntime.Object {
		if e.Object != nil {
			return e.Object
		}
		obj, err := e.Cell.Decode(func() (kruntime.Object, error) { return value(name).Object, nil })
		if err != nil {
			t.Fatal(err)
		}
		return obj
	}
	first, second := lend("1"), lend("1")
	one, two := decode(first, "one"), decode(second, "two")
	if one != two {
		t.Error("decoded twice")
	}
	if held, size, ok := c.Held("a", []byte("1")); !ok || held != one || size != 2<<20 {
		t.Errorf("held %t, %d bytes", ok, size)
	}
	if _, _, ok := c.Held("a", []byte("2")); ok || decode(lend("2"), "three") == one {
		t.Error("another state is the same object")
	}
	runtime.KeepAlive(one)
}
