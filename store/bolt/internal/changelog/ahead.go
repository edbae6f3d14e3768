package changelog

import (
	"errors"
	"fmt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// Ahead finds the next change of a key, for one who reads a log in parts: the state after
// a change is the one before the next change. What a part has looked through is not
// looked through again for the next one. It takes about 20 bytes for each change that was
// looked through, until a part is at the end of the log.
type Ahead struct {
	Filter store.LogFilter // selects the changes that are read
	// WholeCommits ends parts behind marks, unless a commit is very large: who has looked
	// a resource version up needs the mark of each change. See store.Insides.
	WholeCommits bool

	next    map[string][]found // changes that were found, in order, by file key
	through uint64             // items before this number were looked through
	lineage string             // of the log that was read
}

// found is where a change is.
type found struct{ number, block uint64 }

// resolve sets the states after of the open events of r, but of those whose keys do not
// change again. All changes before the number from were read.
func (a *Ahead) resolve(r *events, from uint64) error {
	for key := range r.open {
		if at, ok := a.after(key, from); ok {
			e, err := r.entryAt(at)
			if err != nil {
				return err
			}
			r.resolve(key, r.before(e))
		}
	}
	if len(r.open) == 0 {
		return r.err
	}
	from = max(from, a.through)
	err := r.EachHead(from, func(b *record.Block) bool {
		// What is not acknowledged may be written again, as something else.
		isKept := b.Last() <= r.Log.Last
		for i := range b.Entries {
			e := &b.Entries[i]
			if e.Number < from || !a.Filter.Matches(e.OwnKey()) {
				continue
			}
			if err := r.Check(b); err != nil {
				r.err = err
				return false
			}
			if isKept {
				a.add(e.Key, found{e.Number, b.Key})
			}
			if r.open[e.Key] != nil {
				r.resolve(e.Key, r.before(e))
			}
		}
		if isKept {
			a.through = max(a.through, b.Last()+1)
		}
		return len(r.open) > 0 && r.err == nil
	})
	return errors.Join(err, r.err)
}

// after returns where a key changes next, from a number on, if that was looked through.
func (a *Ahead) after(key string, from uint64) (found, bool) {
	all := a.next[key]
	for len(all) > 0 && all[0].number < from {
		all = all[1:]
	}
	if len(all) == 0 {
		delete(a.next, key)
		return found{}, false
	}
	a.next[key] = all
	return all[0], true
}

func (a *Ahead) add(key string, at found) {
	if a.next == nil {
		a.next = map[string][]found{}
	}
	a.next[key] = append(a.next[key], at)
}

// of notes the log that is read from a number on. It returns store.ErrLineage if its
// numbers are those of another one: it has begun again since.
func (a *Ahead) of(l *record.LogState, from uint64) error {
	if from > l.Last+1 || a.lineage != "" && a.lineage != l.Lineage && l.Begin < from {
		return store.ErrLineage
	}
	if a.lineage != l.Lineage {
		a.reset()
	}
	a.lineage = l.Lineage
	return nil
}

func (a *Ahead) reset() { a.next, a.through = nil, 0 }

// entryAt returns a change that was found.
func (r *Reader) entryAt(at found) (*record.LogEntry, error) {
	e, err := record.DecodeEntry(at.block, r.bucket().Get(Key(at.block)), at.number)
	if err != nil {
		return nil, r.Corrupt(fmt.Sprintf("log of %s at %d", r.Scope, at.block), err)
	}
	return e, nil
}
