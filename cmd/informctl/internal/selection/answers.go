package selection

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/informctl/informctl/cmd/informctl/internal/source"
)

// answers counts the objects that a flag asks for values. An object that the flag does
// not fit has no value: such objects are counted, because a flag that fits none is most
// likely a mistake of the user.
type answers struct {
	flag string // such as --sort-by
	noun string // what it asks for: the field, or a value

	asked, having atomic.Int64 // objects, and those that have a value

	mu             sync.Mutex  // protects the fields below
	misfits, texts int         // objects that the flag, or a number, does not fit
	first          source.Item // of these, in the order of output
	err            error       // of first; nil if there is none
}

func (a *answers) asks() string { return a.flag }

// restart forgets all objects.
func (a *answers) restart() {
	a.asked.Store(0)
	a.having.Store(0)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.misfits, a.texts, a.first, a.err = 0, 0, source.Item{}, nil
}

// misfit counts an object that has no value because of an error.
func (a *answers) misfit(i source.Item, err error) { a.count(i, &a.misfits, err) }

// refuse counts an object with a value that is no number because of an error. all means
// that it has no other value.
func (a *answers) refuse(i source.Item, all bool, err error) {
	a.count(i, &a.texts, err)
	if all {
		a.having.Add(-1)
	}
}

func (a *answers) count(i source.Item, count *int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*count++
	if a.err == nil || source.CompareItems(i, a.first) < 0 {
		a.first, a.err = i, err
	}
}

// verdict returns what a user should know after the last object: how many objects have no
// value, and the first of them. It returns an error if the flag fits none of them.
func (a *answers) verdict() (note string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	asked, n := a.asked.Load(), int64(a.misfits+a.texts)
	switch {
	case n == 0:
		return "", nil
	case a.having.Load() == 0 && (n == asked || a.texts > 0):
		return "", a.first.Wrap(fmt.Errorf("%s: %w", a.flag, a.err))
	}
	return fmt.Sprintf("%d of %d objects count as ones without %s that %s asks for, as %v", n, asked, a.noun, a.flag, a.first.Wrap(a.err)), nil
}
