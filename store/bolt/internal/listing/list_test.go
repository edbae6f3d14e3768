package listing_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/listing"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// content is a Content of maps, by file key.
type content struct {
	stored, written map[string]*overlay.Entry
	size            int     // of a payload
	outcomes        []error // of the next calls of Load and Stage
	writes          []string
	firsts          []bool // of each Stage
	left            int    // calls of LoadRest
	isAll           bool   // of LoadRest
	chunk           int    // the most bytes that Staged was asked for
	ended           int
	lost            error         // returned by Lost
	restLost        error         // returned by LoadRest
	failing         string        // the call that returns errBroken
	gate            chan struct{} // writes wait until it is closed; nil: they do not
}

var errBroken = errors.New("broken")

// newContent returns a content of objects: see parse.
func newContent(stored string) *content {
	c := &content{stored: map[string]*overlay.Entry{}, written: map[string]*overlay.Entry{}}
	for _, word := range strings.Fields(stored) {
		name, value, _ := strings.Cut(word, "=")
		e, _ := c.Prepare(object(name, value))
		c.stored[e.Key] = e
	}
	return c
}

func object(name, value string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: value}}
}

func (c *content) fails(call string) error {
	if c.failing == call {
		return errBroken
	}
	return nil
}

func (c *content) Lost() error { return c.lost }

func (c *content) Prepare(obj runtime.Object) (*overlay.Entry, error) {
	o := obj.(*metav1.PartialObjectMetadata)
	if o.ResourceVersion == "bad" {
		return nil, &store.ObjectError{Key: o.Name, Err: errBroken}
	}
	return &overlay.Entry{
		Key: record.FileKey(o.Name), Name: o.Name, Head: &record.Header{RV: o.ResourceVersion},
		Payload: record.Packed{Bytes: make([]byte, c.size)},
	}, nil
}

func (c *content) Same(e *overlay.Entry, _ runtime.Object) (bool, error) {
	is := c.stored[e.Key]
	return is != nil && is.Head.RV == e.Head.RV, c.fails("same")
}

func (c *content) Keys(after string, n int) (keys []string, err error) {
	for _, key := range slices.Sorted(maps.Keys(c.stored)) {
		if key > record.FileKey(after) && len(keys) < n {
			keys = append(keys, c.stored[key].Name)
		}
	}
	return keys, c.fails("keys")
}

func (c *content) write(entries []*overlay.Entry) error {
	if c.gate != nil {
		<-c.gate
	}
	var words []string
	for _, e := range entries {
		words = append(words, word(e.Name, e))
	}
	c.writes = append(c.writes, strings.Join(words, " "))
	if len(c.outcomes) > 0 && c.left == 0 {
		err := c.outcomes[0]
		if c.outcomes = c.outcomes[1:]; err != nil {
			return err
		}
	}
	for _, e := range entries {
		if c.written[e.Key] = e; e.Head == nil {
			delete(c.written, e.Key)
		}
	}
	return nil
}

func (c *content) Load(entries []*overlay.Entry) error { return c.write(entries) }

func (c *content) LoadRest(entries []*overlay.Entry, isAll bool) error {
	c.left, c.isAll = c.left+1, isAll
	if c.restLost != nil {
		return c.restLost
	}
	return c.write(entries)
}

func (c *content) Stage(entries []*overlay.Entry, first bool) error {
	c.firsts = append(c.firsts, first)
	return c.write(entries)
}

func (c *content) Staged(after string, bytes int) (entries []*overlay.Entry, err error) {
	c.chunk = max(c.chunk, bytes)
	for _, key := range slices.Sorted(maps.Keys(c.written)) {
		if key > after && bytes > 0 {
			entries = append(entries, c.written[key])
			bytes -= len(c.written[key].Payload.Bytes) + 1
		}
	}
	return entries, c.fails("staged")
}

func (c *content) Changes(entries []*overlay.Entry) (changes []store.Change, err error) {
	for _, e := range entries {
		changes = append(changes, store.Change{Key: e.Name, Prepared: e})
	}
	return changes, c.fails("changes")
}

func (c *content) End() error {
	c.ended++
	return nil
}

// word is "a=1" for an object and "-a" for a deletion.
func word(name string, e *overlay.Entry) string {
	if e == nil || e.Head == nil {
		return "-" + name
	}
	return name + "=" + e.Head.RV
}

// all returns what a content has.
func all(entries map[string]*overlay.Entry) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		words = append(words, word(entries[key].Name, entries[key]))
	}
	return strings.Join(words, " ")
}

// play tells a list what arrives: "a=1" is an object, "a=bad" one that cannot be stored,
// "~a" is kept and "-a" is removed.
func play(t *testing.T, l *listing.List, arrives string) {
	t.Helper()
	for _, word := range strings.Fields(arrives) {
		name, value, _ := strings.Cut(word, "=")
		switch word[0] {
		case '~':
			l.Keep(name[1:])
		case '-':
			l.Remove(name[1:])
		default:
			var bad *store.ObjectError
			if err := l.Add(object(name, value)); errors.As(err, &bad) != (value == "bad") || err != nil && bad == nil {
				t.Fatalf("add %s: %v", word, err)
			}
		}
	}
}

// apply applies the parts of a list to the stored content. It returns the changes.
func apply(t *testing.T, c *content, l *listing.List) string {
	t.Helper()
	var words []string
	changed := map[string]bool{}
	last, replaces := false, false
	for b, err := range l.Parts("7") {
		if err != nil {
			t.Fatal(err)
		}
		if last {
			t.Error("a part after the one with the resource version")
		}
		if last = b.RV == "7"; b.Loaded {
			c.stored = c.written
		}
		for _, change := range b.Changes {
			e, isObject := change.Prepared.(*overlay.Entry)
			if changed[change.Key] || replaces && !isObject {
				t.Errorf("%s is changed twice, or a deletion after a change", change.Key)
			}
			replaces, changed[change.Key] = isObject, true
			words = append(words, word(change.Key, e))
			if c.stored[record.FileKey(change.Key)] = e; !isObject {
				delete(c.stored, record.FileKey(change.Key))
			}
		}
	}
	if !last {
		t.Error("no part has the resource version")
	}
	return strings.Join(words, " ")
}

// TestLists plays lists, whose entries stay in memory until the end, or are each written
// as soon as they arrive, or every second time cannot be written.
func TestLists(t *testing.T) {
	long := strings.Repeat("n", record.MaxKey+1)
	for _, test := range []struct {
		name            string
		stored, arrives string
		changes         string // if the entries stay in memory
		want            string
	}{
		{name: "first list", arrives: "b=1 a=1", want: "a=1 b=1"},
		{name: "first list of nothing"},
		{name: "first list, key twice", arrives: "a=1 b=1 a=2", want: "a=2 b=1"},
		{name: "first list, removed", arrives: "a=1 b=1 -a c=1", want: "b=1 c=1"},
		{name: "first list, removed and added again", arrives: "a=1 -a a=2", want: "a=2"},
		{name: "first list, rejected", arrives: "a=bad b=1", want: "b=1"},
		{name: "first list, rejected after it was added", arrives: "a=1 a=bad", want: "a=1"},
		{"same", "a=1", "a=1", "", "a=1"},
		{"changed", "a=1 b=1", "b=1 a=2", "a=2", "a=2 b=1"},
		{"new", "b=1", "b=1 a=1", "a=1", "a=1 b=1"},
		{"gone", "a=1 b=1 c=1", "b=1", "-a -c", "b=1"},
		{"all of it", "a=1 b=1 c=1 d=1", "c=2 e=1 ~b d=1", "-a c=2 e=1", "b=1 c=2 d=1 e=1"},
		{"kept", "a=1 b=1", "~a", "-b", "a=1"},
		{"rejected", "a=1 b=1", "a=bad", "-b", "a=1"},
		{"rejected after it was added", "a=1", "a=2 a=bad", "a=2", "a=2"},
		{"twice, changed each time", "a=1", "a=2 a=3", "a=3", "a=3"},
		{"twice, unchanged the second time", "a=1", "a=2 a=1", "", "a=1"},
		{"twice, unchanged behind others", "a=1", "a=2 b=1 c=1 a=1", "b=1 c=1", "a=1 b=1 c=1"},
		{"removed", "a=1 b=1", "a=2 b=1 -a", "-a", "b=1"},
		{"removed before others", "a=1", "a=2 -a b=1 c=1", "-a b=1 c=1", "b=1 c=1"},
		{"removed and added again", "a=1", "a=2 -a a=3", "a=3", "a=3"},
		{"removed and added as it was", "a=1", "a=2 -a a=1", "", "a=1"},
		{"long name", "b=1 " + long + "=1", "b=1 " + long + "=2", long + "=2", "b=1 " + long + "=2"},
		{"long name kept", "b=1 " + long + "=1", "~" + long, "-b", long + "=1"},
		{"long name removed", long + "=1", long + "=2 -" + long, "-" + long, ""},
	} {
		for _, writes := range []string{"nothing", "all", "half"} {
			t.Run(test.name+", writes "+writes, func(t *testing.T) {
				c := newContent(test.stored)
				loads, inMemory := test.stored == "", writes == "nothing"
				l := listing.New(c, loads, logr.Discard())
				if !inMemory {
					l.SetLimit(1)
				}
				if writes == "half" {
					c.outcomes = []error{nil, errBroken, nil, errBroken}
				}
				play(t, l, test.arrives)
				if changes := apply(t, c, l); inMemory && changes != test.changes {
					t.Errorf("changes %q, want %q", changes, test.changes)
				}
				if got := all(c.stored); got != test.want {
					t.Errorf("%q after the list, want %q", got, test.want)
				}
				if !loads {
					return
				}
				if c.left != 1 || c.isAll != (inMemory || test.want == "") {
					t.Errorf("the rest was loaded %d times; all %t", c.left, c.isAll)
				}
				for key := range c.stored {
					if !l.Listed.IsAdded(key) || l.Listed.Added() != len(c.stored) {
						t.Errorf("%s was added: %t; %d were added", key, l.Listed.IsAdded(key), l.Listed.Added())
					}
				}
			})
		}
	}
}

// TestWriteThatFails checks that the entries that were not written stay in memory, unless
// newer ones have arrived, and that the next write begins when their size has doubled.
func TestWriteThatFails(t *testing.T) {
	for loads, want := range map[bool]struct {
		writes []string
		firsts []bool
	}{
		true:  {writes: []string{"a=1", "a=2 b=1", "c=1 d=1", "e=1"}},
		false: {writes: []string{"a=1", "a=2 b=1", "c=1 d=1"}, firsts: []bool{true, true, false}},
	} {
		c := newContent("")
		c.outcomes = []error{errBroken}
		l := listing.New(c, loads, logr.Discard())
		l.SetLimit(1)
		play(t, l, "a=1 a=2 b=1 c=1 d=1 e=1")
		apply(t, c, l)
		if diff := cmp.Diff(want.writes, c.writes) + cmp.Diff(want.firsts, c.firsts); diff != "" {
			t.Errorf("loads %t: writes (-want +got):\n%s", loads, diff)
		}
		if got, want := all(c.stored), "a=2 b=1 c=1 d=1 e=1"; got != want {
			t.Errorf("loads %t: %q after the list, want %q", loads, got, want)
		}
	}
}

// TestLimit checks that entries that were replaced or removed do not count.
func TestLimit(t *testing.T) {
	c := newContent("z=1")
	l := listing.New(c, false, logr.Discard())
	l.SetLimit(2 * (&overlay.Entry{Key: "a"}).Size())
	play(t, l, "a=1 a=2 -a z=2 z=1 a=3")
	if play(t, l, "b=1"); l.Close() != nil || !slices.Equal(c.writes, []string{"a=3 b=1"}) {
		t.Errorf("writes %q", c.writes)
	}
}

// TestLost checks that a list ends with the error of the loss, and writes nothing more.
func TestLost(t *testing.T) {
	lost := errors.New("lost")
	for _, loads := range []bool{true, false} {
		for _, inRest := range []bool{true, false} {
			if inRest && !loads {
				continue
			}
			c := newContent("a=1")
			l := listing.New(c, loads, logr.Discard())
			l.SetLimit(1)
			play(t, l, "b=1")
			if inRest {
				c.restLost = lost
			} else if c.lost = lost; !errors.Is(l.Add(object("c", "1")), lost) {
				t.Error("an object was added to a lost list")
			}
			n := 0
			for b, err := range l.Parts("7") {
				if n++; !errors.Is(err, lost) || b.Loaded || b.RV != "" {
					t.Errorf("part %+v, error %v", b, err)
				}
			}
			if err := l.Close(); err != nil || c.ended != 1 {
				t.Errorf("ended %d times: %v", c.ended, err)
			}
			if n != 1 || !slices.Equal(c.writes, []string{"b=1"}) || !inRest && c.left != 0 {
				t.Errorf("loads %t: %d parts; %q was written, and the rest %d times", loads, n, c.writes, c.left)
			}
		}
	}
}

// TestClose checks that Close waits for the write that is going on, that a second Close
// does nothing, and that a closed list takes and yields nothing.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newContent("a=1")
		c.gate = make(chan struct{})
		l := listing.New(c, false, logr.Discard())
		l.SetLimit(1)
		play(t, l, "b=1")
		done := make(chan error)
		go func() { done <- l.Close() }()
		synctest.Wait()
		if c.ended != 0 {
			t.Error("the list has ended while it was written")
		}
		close(c.gate)
		if err := errors.Join(<-done, l.Close()); err != nil || c.ended != 1 {
			t.Errorf("ended %d times: %v", c.ended, err)
		}
		if err := l.Add(object("c", "1")); !errors.Is(err, store.ErrClosed) {
			t.Errorf("Add to a closed list: %v", err)
		}
		for b, err := range l.Parts("7") {
			if !errors.Is(err, store.ErrClosed) {
				t.Errorf("part of a closed list: %+v, %v", b, err)
			}
		}
	})
}

// TestParts checks that parts are bounded by number and by bytes, and that nothing is
// yielded after the caller has stopped.
func TestParts(t *testing.T) {
	for _, test := range []struct{ stored, listed, size, parts int }{
		{stored: 5000, parts: 20},
		{stored: 1, listed: 600, parts: 1 + 3},
		{stored: 1, listed: 9, size: 300 << 10, parts: 1 + 3},
		{stored: 256, listed: 256, parts: 1 + 1},
	} {
		for _, limit := range []int{1, 1 << 30} {
			for stop := 1; stop <= test.parts+1; stop++ {
				c := newContent("")
				for i := range test.stored {
					e, _ := c.Prepare(object(fmt.Sprintf("s%04d", i), "1"))
					c.stored[e.Key] = e
				}
				c.size = test.size
				l := listing.New(c, false, logr.Discard())
				l.SetLimit(limit)
				for i := range test.listed {
					play(t, l, fmt.Sprintf("l%04d=1", i))
				}
				n, changes := 0, 0
				for b, err := range l.Parts("7") {
					if err != nil || len(b.Changes) > 256 || len(b.Changes)*test.size > 1<<20+test.size {
						t.Fatalf("%+v: %d changes in part %d: %v", test, len(b.Changes), n, err)
					}
					if changes += len(b.Changes); (b.RV != "") != (n == test.parts) {
						t.Fatalf("%+v: part %d has the resource version %q", test, n, b.RV)
					}
					if n++; n == stop {
						break
					}
				}
				if c.chunk > 1<<20 {
					t.Errorf("%d bytes are read at once", c.chunk)
				}
				if n == test.parts+1 && changes != test.stored+test.listed {
					t.Errorf("%+v: %d changes", test, changes)
				}
			}
		}
	}
}

// TestReadThatFails checks that the error of each read ends the list.
func TestReadThatFails(t *testing.T) {
	for _, failing := range []string{"same", "keys", "staged", "changes"} {
		c := newContent("a=1")
		l := listing.New(c, false, logr.Discard())
		l.SetLimit(1)
		play(t, l, "a=2")
		c.failing = failing
		if err := l.Add(object("b", "1")); errors.Is(err, errBroken) != (failing == "same") {
			t.Errorf("%s fails: %v", failing, err)
		}
		var errs []error
		for b, err := range l.Parts("7") {
			if err != nil {
				errs = append(errs, err)
			} else if len(errs) > 0 || b.RV != "" && failing != "same" {
				t.Errorf("%s fails: %+v is yielded", failing, b)
			}
		}
		if failing != "same" && (len(errs) != 1 || !errors.Is(errs[0], errBroken)) {
			t.Errorf("%s fails: %v", failing, errs)
		}
	}
}
