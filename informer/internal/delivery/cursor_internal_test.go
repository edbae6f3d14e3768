package delivery

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/informctl/informctl/informer/internal/delivery/queue"
	"github.com/informctl/informctl/store"
)

// ordered is a Store of keys in an order of its own.
type ordered struct {
	Store
	keys []string
}

func (o ordered) Select(q store.Query) (entries []store.Entry, err error) {
	for _, key := range o.keys[slices.Index(o.keys, q.After)+1:] {
		if len(entries) < q.Limit {
			entries = append(entries, store.Entry{Key: key})
		}
	}
	return entries, nil
}

// TestCursorOfLongKeys checks which changes come before a cursor has reached their
// objects where long keys do not come in the order of keys.
func TestCursorOfLongKeys(t *testing.T) {
	begin := strings.Repeat("k", longKey)
	passed, ahead := begin+"2", begin+"1"
	var s ordered
	for i := range CursorChunk - 1 {
		s.keys = append(s.keys, fmt.Sprintf("a%03d", i))
	}
	s.keys = append(s.keys, passed, ahead)
	var added []string
	add := func(e store.Entry) queue.Notification {
		added = append(added, e.Key)
		return queue.Notification{}
	}
	var c cursor
	c.begin()
	if _, last, err := c.load(s, add); last || err != nil {
		t.Fatalf("all was read at once: %v", err)
	}
	if c.isEarly(passed) || c.isEarly("a001") {
		t.Error("a change of an object that was passed is early: it is added twice")
	}
	if !c.isEarly(ahead) {
		t.Error("a change of an object that is ahead is not early: it comes before its add")
	}
	if n, last, err := c.load(s, add); n != 0 || !last || err != nil || slices.Contains(added, ahead) {
		t.Errorf("%d of the rest were added, last %t, %v", n, last, err)
	}
}
