package informer

import (
	"context"
	"runtime"
	"strings"

	"github.com/informctl/informctl/store"
)

// A file can be lost under a running informer: cut, overwritten or removed; and a
// scope can be wiped. The store then begins a fresh one and loads the next list into it, with nothing to
// compare it with. So the informer keeps the keys of all objects that handlers are
// told of, and compares those (ARCHITECTURE.md, "Damage while running").

// noticeLosses asks for a list when the store says that it has lost what it held,
// which otherwise the next change or read would find. It blocks until the context
// ends.
func (inf *Informer) noticeLosses(ctx context.Context) {
	held, ok := inf.store.(store.Loser)
	if !ok {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-held.Lost():
		}
		if _, err := inf.store.Scan("", 1); err != nil && ctx.Err() == nil { // or it was listed meanwhile
			inf.lose(ctx, err)
		}
	}
}

// noteKnownLocked takes the keys from the store. Until it could, no handler may be told
// of anything: what they know would not be known.
func (inf *Informer) noteKnownLocked() error {
	inf.known.Clear()
	keys, err := inf.store.TryListKeys()
	if inf.unknown = err != nil; err != nil {
		inf.ready = false
		inf.loseLocked(inf.ctx, err)
		return err
	}
	for _, key := range keys {
		inf.known.Insert(key)
	}
	return nil
}

func (inf *Informer) isKnown(key string) bool {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	return inf.known.Contains(key)
}

// tellLoadedLocked tells of a list that was loaded at once: a known object is
// updated, with the same object as old since what was is lost; one that is not in
// the list is deleted, and one that was not known is added. A cold start knows none:
// cursors bring its objects.
func (inf *Informer) tellLoadedLocked() error {
	if !inf.ready {
		return inf.noteKnownLocked()
	}
	inf.untold = true
	gone := inf.known.Copy()
	for after, more := "", true; more; {
		entries, err := inf.store.Scan(after, scanChunk)
		if err != nil {
			inf.loseLocked(inf.ctx, err)
			return err
		}
		for _, e := range entries {
			after = e.Key
			was := store.Entry{}
			if inf.known.Contains(e.Key) {
				was = e
			}
			gone.Delete(e.Key)
			inf.distributeLocked(change{key: e.Key, is: e}, was, nil)
		}
		more = len(entries) == scanChunk
	}
	inf.untold = false
	gone.Scan(func(key string) bool {
		inf.distributeLocked(change{key: key}, store.Entry{Key: key}, nil)
		return true
	})
	return nil
}

// isCalledBack reports whether the caller is a transform, an index function, a watch
// error handler or a ListerWatcher that this or another informer has called: a list
// waits for those, so they must not wait for one. Go has no other name for who calls
// than the stack. It is asked for only where what is stored is damaged.
func isCalledBack() bool {
	var stack [128]uintptr
	frames := runtime.CallersFrames(stack[:runtime.Callers(2, stack[:])])
	for {
		frame, more := frames.Next()
		switch name := frame.Function; {
		case strings.HasPrefix(name, reflectorPackage), strings.HasSuffix(name, ".(*Informer).processLoop"),
			strings.HasSuffix(name, ".(*Informer).AddIndexers"):
			return true
		case !more:
			return false
		}
	}
}

// reflectorPackage begins the names of all functions of package reflector.
const reflectorPackage = "github.com/informctl/informctl/reflector."
