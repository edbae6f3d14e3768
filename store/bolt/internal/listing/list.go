// Package listing collects the list of a server and compares it with the stored content
// of a scope. It knows neither the file nor the scope: a Content does the reads and the
// writes.
package listing

import (
	"errors"

	"github.com/go-logr/logr"
	"github.com/tidwall/btree"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// writeBytes is how many bytes of entries a list writes in one transaction. The same
// amount is collected in memory meanwhile.
const writeBytes = 8 << 20

// Content is the stored content of a scope while it is listed, and what was written of
// the list. Load and Stage are called in a goroutine of the List, one call at a time, and
// have returned before LoadRest, Staged and End are called. All other calls are made by
// the goroutine that drives the List. An entry without a header deletes what was written
// of its key. The List does not change entries that it has passed, and the slices are the
// callee's.
type Content interface {
	// Lost returns why what was written of the list is lost, or nil. The list cannot
	// continue after an error.
	Lost() error
	// Prepare returns the entry of a listed object. It returns a *store.ObjectError if
	// the object cannot be stored.
	Prepare(obj runtime.Object) (*overlay.Entry, error)
	// Same reports whether the content has the object of an entry, which was prepared. A
	// damaged object counts as different, so that the list replaces it. After an error of
	// Same, Keys or Staged the list cannot be compared with the content.
	Same(e *overlay.Entry, obj runtime.Object) (bool, error)
	// Keys returns up to n own keys of stored objects, in the order of their file keys,
	// that come after the given one.
	Keys(after string, n int) ([]string, error)

	// Load writes a part of a first list. An error may leave the part written.
	Load(entries []*overlay.Entry) error
	// LoadRest ends a first list and keeps the entries that it cannot write. isAll means
	// that nothing was passed to Load. It returns an error if the list is lost.
	LoadRest(entries []*overlay.Entry, isAll bool) error

	// Stage writes a part of what differs. first means that no part was written before:
	// what is staged then is of another list. An error may leave the part written.
	Stage(entries []*overlay.Entry, first bool) error
	// Staged returns what was staged after a file key, in key order: about as many bytes
	// as given, and nothing at the end.
	Staged(after string, bytes int) ([]*overlay.Entry, error)
	// Changes returns the change for each entry of an object that differs. One that takes
	// the name of another stored object Departs.
	Changes(entries []*overlay.Entry) ([]store.Change, error)

	// End drops what was written of a list and not applied. It is called once.
	End() error
}

// List implements store.Relist. One goroutine drives it.
//
// If there is no content yet, all entries are loaded. Otherwise those that differ are
// staged. Both are collected in memory and then written.
//
// A goroutine writes either of them, at most one goroutine at a time. It ends after its
// call of Load or Stage, which Parts and Close wait for. The list continues meanwhile.
type List struct {
	// Listed are the listed keys. They do not change while Parts yields: whoever applies
	// the parts may read them.
	Listed Keys

	content Content
	loads   bool // there is nothing to compare the list with
	log     logr.Logger
	staged  *btree.Map[string, *overlay.Entry]
	bytes   int                                // of staged
	limit   int                                // size at which staged is written
	writing *btree.Map[string, *overlay.Entry] // by the goroutine; nil if there is none
	written chan error                         // its result
	sent    bool                               // something was passed to the goroutine
	spilled bool                               // a part was written
	closed  bool
}

// New returns an empty list. loads says that there is nothing to compare it with. log
// gets the errors of Load and Stage.
func New(content Content, loads bool, log logr.Logger) *List {
	l := &List{content: content, loads: loads, log: log, limit: writeBytes, written: make(chan error, 1)}
	l.reset()
	return l
}

// SetLimit sets the number of bytes that are collected before they are written.
func (l *List) SetLimit(bytes int) { l.limit = bytes }

// Add implements store.Relist.
func (l *List) Add(obj runtime.Object) error {
	if err := l.check(); err != nil {
		return err
	}
	e, err := l.content.Prepare(obj)
	if err != nil {
		var bad *store.ObjectError
		if errors.As(err, &bad) && bad.Key != "" {
			l.Keep(bad.Key)
		}
		return err
	}
	again := l.Listed.Add(e.Key)
	if !l.loads {
		same, err := l.content.Same(e, obj)
		if err != nil {
			return err
		}
		if same && (!again || l.unstage(e.Key)) {
			return nil
		}
	}
	l.stage(e)
	if l.bytes < l.limit {
		return nil
	}
	l.awaitWritten()
	if l.bytes < l.limit {
		return nil
	}
	l.writing, l.sent = l.staged, true
	l.reset()
	go func() { l.written <- l.write(l.writing.Values()) }()
	return nil
}

// awaitWritten waits for the goroutine that writes. A full or broken disk must not keep
// the list from being served: the entries that were not written stay in memory, and the
// next attempt begins when their size has doubled.
func (l *List) awaitWritten() {
	if l.writing == nil {
		return
	}
	err := <-l.written
	failed := l.writing
	if l.writing = nil; err == nil {
		l.spilled = true
		return
	}
	l.log.Error(err, "Could not write a list, keeping it in memory")
	failed.Scan(func(key string, e *overlay.Entry) bool {
		if _, newer := l.staged.Get(key); !newer {
			l.stage(e)
		}
		return true
	})
	l.limit = 2 * l.bytes
}

// write writes staged entries.
func (l *List) write(entries []*overlay.Entry) error {
	if l.loads {
		return l.content.Load(entries)
	}
	return l.content.Stage(entries, !l.spilled)
}

// check returns an error if the list cannot continue, because it was closed or because
// what it has written is lost.
func (l *List) check() error {
	if l.closed {
		return store.ErrClosed
	}
	return l.content.Lost()
}

// Keep implements store.Relist.
func (l *List) Keep(name string) { l.Listed.Keep(record.FileKey(name)) }

// Remove implements store.Relist. An entry that may already be in the file is deleted
// there by staging a deletion.
func (l *List) Remove(name string) {
	key := record.FileKey(name)
	l.Listed.Remove(key)
	l.drop(key)
	if l.sent {
		l.stage(&overlay.Entry{Key: key, Name: name})
	}
}

func (l *List) stage(e *overlay.Entry) {
	if old, replaced := l.staged.Set(e.Key, e); replaced {
		l.bytes -= old.Size()
	}
	l.bytes += e.Size()
}

// unstage drops a staged earlier version of a key that the list then contained unchanged.
// It returns false if that version may already be on its way to the file.
func (l *List) unstage(key string) bool {
	if l.spilled || l.writing != nil {
		return false
	}
	l.drop(key)
	return true
}

func (l *List) drop(key string) {
	if old, there := l.staged.Delete(key); there {
		l.bytes -= old.Size()
	}
}

func (l *List) reset() {
	l.staged, l.bytes = &btree.Map[string, *overlay.Entry]{}, 0
}

// Close implements store.Relist.
func (l *List) Close() error {
	if l.closed {
		return nil
	}
	l.closed = true
	l.awaitWritten()
	return l.content.End()
}
