// Package commit writes what a scope has captured of its state: objects, log, departed
// objects and checkpoint of one moment, in one transaction (promises 1 and 2).
package commit

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/content"
	"github.com/informctl/informctl/store/bolt/internal/graveyard"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/pack"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// Part is the part of a commit that concerns one scope. Its caller sets the exported
// fields down to Capture, which are the state of one moment.
type Part struct {
	Overlay    overlay.View
	Packer     *pack.Packer
	Checkpoint store.Checkpoint
	Loading    bool             // the scope is not complete
	Told       uint64           // the last departed object that was delivered
	Settled    uint64           // the same by an earlier process
	Gone       []*overlay.Entry // of the former content: see graveyard.State
	changelog.Capture

	Written  bool            // by Write; the transaction may still fail
	Log      record.LogState // after it
	Departed int             // departed objects that were written
	Dropped  int             // departed objects that were not kept
	Stored   int             // objects in the file after it
	Bytes    int64           // of their records

	entries []*overlay.Entry // of Overlay, in key order
	packed  []record.Packed  // of entries
	earlier tally            // what DropFormer has written and not kept

	// befores are the states that were never written, of what departs or is deleted,
	// finals the final states of what departs.
	befores, finals map[*overlay.Entry]record.Packed
}

// tally counts departed objects.
type tally struct{ departed, dropped int }

// Pack compresses and encrypts the entries, before the transaction begins.
func (p *Part) Pack() (err error) {
	p.entries = p.Overlay.All()
	if p.packed, err = p.Packer.Pack(seal.InScope, p.entries); err != nil {
		return err
	}
	p.befores, p.finals = map[*overlay.Entry]record.Packed{}, map[*overlay.Entry]record.Packed{}
	var of, befores []*overlay.Entry
	for _, e := range slices.Concat(p.entries, p.Gone) {
		if e.Departs != 0 && e.Last.Bytes != nil {
			p.finals[e] = p.Packer.Final(e)
		}
		if e.Before != nil {
			of, befores = append(of, e), append(befores, e.Before)
		}
	}
	packed, err := p.Packer.Pack(seal.InScope, befores)
	if err != nil {
		return err
	}
	for i, e := range of {
		p.befores[e] = packed[i]
	}
	return nil
}

// PackedBytes returns the bytes of the packed entries.
func (p *Part) PackedBytes() (n int) {
	for i := range p.packed {
		n += len(p.packed[i].Bytes)
	}
	return n
}

// Size returns the bytes of the packed entries with their keys.
func (p *Part) Size() int64 {
	n := p.PackedBytes()
	for _, e := range p.entries {
		n += len(e.Key)
	}
	return int64(n)
}

// Write writes the part. The caller has to call the Writer's End.
func (p *Part) Write(w *content.Writer, o changelog.Options) error {
	logged := p.appender(w, o)
	for i, e := range p.entries {
		runtime.Gosched() // let event handling run first
		before := w.Before(e.Key)
		if err := logged.Note(e, e.Stored(p.packed[i]), before); err != nil {
			return err
		}
		if err := w.Put(e, p.packed[i], before); err != nil {
			return err
		}
	}
	if err := p.noteGone(logged); err != nil {
		return err
	}
	if p.Lists > 0 { // the list that the former content was kept for is whole
		if err := graveyard.DropFormer(w.Scope); err != nil {
			return err
		}
	}
	w.Manifest.SetCheckpoint(p.Checkpoint)
	w.Manifest.Complete = !p.Loading
	w.Manifest.Log.Settled = p.Told
	if err := logged.End(); err != nil {
		return err
	}
	p.Log, p.Held = w.Manifest.Log, logged.Held
	p.Departed, p.Dropped = p.earlier.departed+logged.Departed, p.earlier.dropped+logged.Dropped
	p.Written, p.Stored, p.Bytes = true, int(w.Manifest.Objects.Count), w.Manifest.Bytes
	return nil
}

// DropFormer logs what has departed from the former content and drops it, if that makes
// room for the rest of the commit. Until that is written the scope is not complete: after
// a crash it is listed again. It returns the attempt to note, nil if nothing was changed.
// The caller has to call the Writer's End.
func (p *Part) DropFormer(w *content.Writer, o changelog.Options) (*changelog.Attempt, error) {
	b := w.Scope.Bucket(layout.Former)
	if b == nil {
		return nil, nil
	}
	former, err := layout.ReadManifest(w.Manifest.Scope().ID(), b)
	if err != nil || p.Size() > former.Bytes {
		return nil, err
	}
	first := *p
	first.Capture = first.WithoutState()
	first.Random = rand.Uint64()
	logged := first.appender(w, o)
	if err := first.noteGone(logged); err != nil {
		return nil, err
	}
	if err := errors.Join(graveyard.DropFormer(w.Scope), logged.End()); err != nil {
		return nil, err
	}
	p.earlier = tally{logged.Departed, logged.Dropped}
	attempt := logged.Attempt()
	return &attempt, nil
}

// Trim frees about n bytes of the log. The caller has to call the Writer's End if the log
// is smaller then.
func (p *Part) Trim(w *content.Writer, o changelog.Options, n int64) error {
	return changelog.TrimBy(w, p.Capture, p.options(o), n)
}

func (p *Part) noteGone(logged *changelog.Appender) error {
	for _, e := range p.Gone {
		if err := logged.NoteGone(e); err != nil {
			return err
		}
	}
	return nil
}

// appender returns what appends to the log what the commit changes.
func (p *Part) appender(w *content.Writer, o changelog.Options) *changelog.Appender {
	return changelog.NewAppender(w, p.Capture, p.options(o))
}

func (p *Part) options(o changelog.Options) changelog.Options {
	o.RV, o.Loading, o.Settled, o.Befores, o.Finals = p.Checkpoint.RV, p.Loading, p.Settled, p.befores, p.finals
	return o
}
