package informer_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/guarantees"
)

// TestFileLost checks a running informer whose file is lost. Handlers receive the
// differences as adds, updates and deletions. Reads wait or return the damage, and never
// return fewer objects. The next start is warm (promises 4 and 5).
func TestFileLost(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
		"cut":         func(path string) error { return os.Truncate(path, 8<<10) },
		"emptied":     func(path string) error { return os.Truncate(path, 0) },
		"removed":     os.Remove,
		"renamed":     func(path string) error { return os.Rename(path, path+".away") },
		"overwritten": func(path string) error { return overwrite(path) },
		"replaced": func(path string) error {
			return os.Rename(path+".other", path)
		},
		"directory removed": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				for i := range 200 {
					w.put(fmt.Sprintf("o-%d", i), "first")
				}
				// This is an older state of the same scope, which later replaces the
				// file.
				r := w.run(informer.Options{}).sync()
				r.end()
				copyFile(t, w.path, w.path+".other")
				told := guarantees.New(nil)
				r = w.run(informer.Options{}, handle(w, told)).sync()
				w.put("o-0", "second")
				waitFor(2 * time.Second) // until it is written
				told.Damaged()
				if err := lose(w.path); err != nil {
					t.Fatal(err)
				}
				w.put("o-1", "third")
				w.put("new", "fourth")
				w.drop("o-2")
				waitFor(10 * time.Minute)
				r.atRest(told)
				w.put("o-5", "fifth")
				waitFor(2 * time.Second)
				r.end()
				since := len(w.server.Requests())
				told.Start(told.Held())
				r = w.run(informer.Options{}, handle(w, told)).sync()
				if lists := w.lists(since); len(lists) > 0 {
					t.Errorf("the next start lists: %q", lists)
				}
				r.atRest(told)
				r.end()
			})
		})
	}
}

// overwrite fills a file with noise.
func overwrite(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	noise := make([]byte, info.Size())
	for i := range noise {
		noise[i] = byte(i*i + i>>8)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err := f.Write(noise); err != nil {
		return err
	}
	return f.Close()
}

// TestFileLostWhileEmpty checks that handlers receive the changes after the file of an
// empty collection was lost.
func TestFileLostWhileEmpty(t *testing.T) {
	inBubble(t, func(w *world) {
		told := guarantees.New(nil)
		r := w.run(informer.Options{}, handle(w, told)).sync()
		w.put("x", "1")
		waitFor(2 * time.Second)
		told.Damaged()
		if err := os.Remove(w.path); err != nil {
			t.Fatal(err)
		}
		w.drop("x")
		waitFor(5 * time.Second) // until the commit has detected the loss
		w.put("a", "1")
		w.put("b", "1")
		waitFor(10 * time.Minute)
		r.atRest(told)
		r.end()
	})
}

// TestFileLostAtList checks that the list that repairs a loss keeps its resource version
// if a second reader detects the loss again during the list.
func TestFileLostAtList(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		rv := w.put("b", "1")
		told := guarantees.New(nil)
		r := w.run(informer.Options{}, handle(w, told)).sync()
		waitFor(5 * time.Second)
		told.Damaged()
		if err := overwrite(w.path); err != nil {
			t.Fatal(err)
		}
		w.server.Hold()
		read := make(chan int, 2)
		for range 2 {
			go func() { read <- len(r.inf.GetStore().List()) }()
			waitFor(5 * time.Second)
		}
		w.server.Release()
		for range 2 {
			if n := <-read; n != 2 {
				t.Errorf("List has %d objects, want 2", n)
			}
		}
		waitFor(5 * time.Second)
		if s := r.inf.Status(); s.Checkpoint.RV != rv || s.Objects != 2 {
			t.Errorf("%d objects up to resource version %q, want 2 up to %s: %s", s.Objects, s.Checkpoint.RV, rv, s.Checkpoint.Reason)
		}
		r.atRest(told)
		r.end()
	})
}

// TestPageLost checks that a page that is lost under a running informer, and that no
// write reads, causes a list and does not stop the informer.
func TestPageLost(t *testing.T) {
	for n := range 8 {
		inBubble(t, func(w *world) {
			for i := range 2000 {
				w.put(fmt.Sprintf("o-%04d", i), fmt.Sprint(i))
			}
			told := guarantees.New(nil)
			r := w.run(informer.Options{DecodedBytes: 1}, handle(w, told)).sync()
			waitFor(5 * time.Second)
			pages, err := leafPages(w.path)
			if err != nil {
				t.Fatal(err)
			}
			page := pages[len(pages)*n/8]
			told.Damaged()
			losePage(t, w.path, page)
			listed := make(chan int, 1)
			go func() { listed <- len(r.inf.GetStore().List()) }()
			waitFor(30 * time.Minute)
			select {
			case got := <-listed:
				if got != 2000 {
					t.Errorf("page %d: List has %d objects", page, got)
				}
			default:
				t.Errorf("page %d: List waits", page)
			}
			r.atRest(told)
			r.end()
		})
	}
}

// TestPageLostAtStart checks that a handler receives each object once if a page is lost
// before the keys of the stored objects have been read.
func TestPageLostAtStart(t *testing.T) {
	for n := range 8 {
		inBubble(t, func(w *world) {
			for i := range 2000 {
				w.put(fmt.Sprintf("o-%04d", i), fmt.Sprint(i))
			}
			w.run(informer.Options{}).sync().end()
			told := guarantees.New(nil)
			told.Damaged()
			r := w.run(informer.Options{}, handle(w, told), func(*informer.Informer) {
				pages, err := leafPages(w.path)
				if err != nil {
					t.Fatal(err)
				}
				losePage(t, w.path, pages[len(pages)*n/8])
				w.drop("o-0000")
			})
			waitFor(30 * time.Minute)
			r.atRest(told)
			r.end()
		})
	}
}

// losePage fills a page with zeros.
func losePage(t *testing.T, path string, page int) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		_, err = file.WriteAt(make([]byte, os.Getpagesize()), int64(page)*int64(os.Getpagesize()))
	}
	if err = errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

// leafPages returns the pages of a bbolt file that contain our entries.
func leafPages(path string) (pages []int, err error) {
	b, err := os.ReadFile(path)
	size := os.Getpagesize()
	for p := 2; p < len(b)/size; p++ {
		head := b[p*size:]
		isLeaf := binary.LittleEndian.Uint16(head[8:]) == 2 && binary.LittleEndian.Uint64(head) == uint64(p)
		if isLeaf && binary.LittleEndian.Uint16(head[10:]) > 6 {
			pages = append(pages, p)
		}
	}
	return pages, err
}
