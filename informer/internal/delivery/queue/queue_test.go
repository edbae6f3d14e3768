package queue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/informer/internal/delivery/queue"
	"github.com/informctl/informctl/store"
)

// encoded returns a notification with an encoded object of 1,000 bytes.
func encoded(i int) queue.Notification {
	key := fmt.Sprintf("k-%03d", i)
	return queue.Notification{Kind: queue.Updated, Key: key, New: store.Entry{Key: key, Raw: []byte(strings.Repeat("x", 1000))}}
}

// fill returns a queue of n notifications, of which three are in memory.
func fill(n int) (*queue.Queue, *queue.Files) {
	files := &queue.Files{Freed: func() {}}
	q := queue.New(&queue.Limits{First: 3000, Chunk: 3000}, files)
	for i := range n {
		q.Add(encoded(i))
	}
	return q, files
}

func spill(t *testing.T, q *queue.Queue) {
	t.Helper()
	dir := t.TempDir()
	for _, c := range q.Cut() {
		w, err := c.Write(dir)
		if err != nil {
			t.Error(err)
		}
		c.Replace(w, err)
	}
}

// drain takes everything that is queued.
func drain(t *testing.T, q *queue.Queue) (keys []string) {
	t.Helper()
	for !q.IsEmpty() {
		taken := q.Take(2)
		for _, n := range taken {
			if len(n.New.Raw) != 1000 {
				t.Errorf("%s has %d bytes", n.Key, len(n.New.Raw))
			}
			keys = append(keys, n.Key)
		}
		if len(taken) > 0 {
			continue
		}
		if loaded, err := q.Load(func(read func()) { read() }); !loaded || err != nil {
			t.Fatalf("loaded %t, %v", loaded, err)
		}
	}
	return keys
}

func TestOrder(t *testing.T) {
	for name, spilled := range map[string]bool{"in memory": false, "in files": true} {
		t.Run(name, func(t *testing.T) {
			q, files := fill(20)
			if spilled {
				spill(t, q)
			}
			if n, inFiles, _ := q.Size(); n != 20 || inFiles != files.Bytes || (inFiles > 0) != spilled {
				t.Errorf("%d queued, %d bytes in files, %d are counted", n, inFiles, files.Bytes)
			}
			var want []string
			for i := range 20 {
				want = append(want, encoded(i).Key)
			}
			if diff := cmp.Diff(want, drain(t, q)); diff != "" {
				t.Errorf("taken (-want +got):\n%s", diff)
			}
			if files.Bytes != 0 {
				t.Errorf("%d bytes are in files of an empty queue", files.Bytes)
			}
		})
	}
}

// TestNotWritten is a full disk: the chunk stays in memory, and counts.
func TestNotWritten(t *testing.T) {
	q, files := fill(10)
	for _, c := range q.Cut() {
		c.Replace(queue.Written{}, errors.New("full"))
	}
	if files.Bytes == 0 {
		t.Error("what could not be written does not count")
	}
	if got := drain(t, q); len(got) != 10 || files.Bytes != 0 {
		t.Errorf("%d are taken, %d bytes count", len(got), files.Bytes)
	}
}

// TestDecodedCounts is a chunk with a decoded object: it stays in memory, and counts.
func TestDecodedCounts(t *testing.T) {
	q, files := fill(5)
	decoded := encoded(5)
	decoded.New.Object = &corev1.ConfigMap{}
	q.Add(decoded)
	if written := q.Cut(); len(written) > 0 || files.Kept < 2000 || files.Bytes > 0 {
		t.Errorf("%d chunks are to be written, %d bytes count", len(written), files.Kept)
	}
	if drain(t, q); files.Kept != 0 {
		t.Errorf("%d bytes count of an empty queue", files.Kept)
	}
}

// TestDroppedWhileWritten is a handler that is removed while its queue is written.
func TestDroppedWhileWritten(t *testing.T) {
	q, files := fill(10)
	cut := q.Cut()
	if _, ok := q.Keys(); ok {
		t.Error("the keys of a chunk are known while it is written")
	}
	q.Drop()
	for _, c := range cut {
		w, err := c.Write(t.TempDir())
		c.Replace(w, err)
	}
	if !q.IsEmpty() || files.Bytes != 0 {
		t.Errorf("empty %t, %d bytes in files", q.IsEmpty(), files.Bytes)
	}
}

// TestKeys are the keys of what cannot be read: of all but the first in memory.
func TestKeys(t *testing.T) {
	q, _ := fill(6)
	spill(t, q)
	q.Add(queue.Notification{Kind: queue.Added, Key: "new", Initial: true})
	q.Add(queue.Notification{Kind: queue.Synced})
	keys, ok := q.Keys()
	want := []queue.Key{{Key: "k-003", Known: true}, {Key: "k-004", Known: true}, {Key: "k-005", Known: true}, {Key: "new", Initial: true}, {Known: true}}
	if diff := cmp.Diff(want, keys); !ok || diff != "" {
		t.Errorf("known %t, keys (-want +got):\n%s", ok, diff)
	}
}
