package storetest

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/informctl/informctl/store"
)

func testLogQuery(h *harness) {
	p := h.logged(configMap("a/one", "1", "red"), configMap("b/two", "1", "red"), configMap("b/three", "1", "blue"))
	one := configMap("b/two", "11", "blue")
	one.Labels = map[string]string{"app": "other"}
	h.apply("12", put(one), gone("b/three", "12"), put(configMap("b/new", "12", "red")))
	must(h, h.Flush(h.Context()))
	keys := func(q store.Query) []string {
		h.Helper()
		q.At = p
		keys, err := h.Keys(q)
		must(h, err)
		entries, err := h.Select(q)
		must(h, err)
		selected := []string{}
		for _, e := range entries {
			selected = append(selected, e.Key)
		}
		same(h, "keys of Select", selected, keys)
		return keys
	}
	same(h, "all", keys(store.Query{}), []string{"a/one", "b/three", "b/two"})
	same(h, "a namespace", keys(store.Query{Namespace: "b"}), []string{"b/three", "b/two"})
	same(h, "a page", keys(store.Query{After: "a/one", Limit: 1}), []string{"b/three"})
	same(h, "a selector", keys(store.Query{Selector: labels.SelectorFromSet(labels.Set{"app": "other"})}), nil)
	same(h, "keys", keys(store.Query{Keys: []string{"b/two", "b/new", "a/one", "b/two"}}), []string{"a/one", "b/two"})
	same(h, "no keys", keys(store.Query{Keys: []string{}}), nil)
	same(h, "keys in an index", keys(store.Query{Keys: []string{"b/two", "a/one"}, Index: "namespace", Values: []string{"b"}}), []string{"b/two"})
	same(h, "an index", keys(store.Query{Index: "namespace", Values: []string{"b"}}), []string{"b/three", "b/two"})
}

// testLogRandom applies random batches, some of them in one commit, lists and restarts,
// and remembers the state at every mark and at every stored resource version. Each can be
// read, and who follows from it ends with what there is.
func testLogRandom(h *harness) {
	rapid.Check(h.T, func(t *rapid.T) {
		h := &harness{T: h.T, cfg: h.cfg, dir: h.TempDir(), scope: h.scope, opts: h.opts}
		h.db = h.cfg.Open(h.T, h.dir)
		defer func() { must(t, h.db.Close()) }()
		h.indexed = h.open(h.scope, h.opts)
		now := map[string]string{}
		last := map[string]string{} // the state before each deletion, by resource version
		revision := 10
		next := func() string { revision++; return strconv.Itoa(revision) }
		h.logged(configMap("a/one", "1", "red"))
		now["a/one"] = "1"
		states := map[store.Place]map[string]string{}
		var told []string // resource versions that were stored
		atTold := map[string]map[string]string{}
		mark := func() {
			states[h.place()] = maps.Clone(now)
			log, err := h.History()
			must(t, err)
			told = append(told, log.Stored)
			atTold[log.Stored] = maps.Clone(now)
		}
		mark()
		keys := []string{"a/one", "a/two", "b/x", "b/xy", longKey}
		change := func(rv string) store.Change {
			key := rapid.SampledFrom(keys).Draw(t, "key")
			if rapid.IntRange(0, 2).Draw(t, "what") == 0 {
				last[rv] = now[key]
				delete(now, key)
				return gone(key, rv)
			}
			now[key] = rv
			return put(configMap(key, rv, "red"))
		}
		check := func() {
			places := slices.SortedFunc(maps.Keys(states), func(a, b store.Place) int { return cmp.Compare(a.Mark, b.Mark) })
			for _, at := range []store.Place{places[len(places)-1], rapid.SampledFrom(places).Draw(t, "place")} {
				want := states[at]
				got, err := objectsAt(h.Store, at)
				must(t, err)
				same(t, "the state at "+at.RV, got, describeState(want))
				if byRV, err := objectsAt(h.Store, store.Place{RV: at.RV}); err != nil || !slices.Equal(byRV, got) {
					t.Errorf("at resource version %s: %q, %v, want %q", at.RV, byRV, err, got)
				}
				events, err := followed(h.Store, at)
				must(t, err)
				same(t, "what follows "+at.RV, describeState(replay(t, want, events)), describeState(now))
				checkShort(t, events, last)
			}
			at := store.Place{RV: rapid.SampledFrom(told).Draw(t, "told")}
			got, err := objectsAt(h.Store, at)
			must(t, err)
			same(t, "the state at the stored "+at.RV, got, describeState(atTold[at.RV]))
			events, err := followed(h.Store, at)
			must(t, err)
			same(t, "what follows the stored "+at.RV, describeState(replay(t, atTold[at.RV], events)), describeState(now))
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			switch rapid.IntRange(0, 8).Draw(t, "step") {
			default:
				for range rapid.IntRange(1, 4).Draw(t, "batches") {
					rv := next()
					h.apply(rv, change(rv))
				}
			case 6:
				must(t, h.Invalidate(h.Context(), "expired"))
				var list []runtime.Object
				for range rapid.IntRange(0, 3).Draw(t, "changed") {
					change(next())
				}
				for key, rv := range now {
					list = append(list, configMap(key, rv, "red"))
				}
				h.applyParts(h.relist(list...), next())
			case 7:
				h.reopen()
			case 8:
				h.apply(next())
			}
			mark()
			check()
		}
	})
}

func describeState(state map[string]string) []string {
	var out []string
	for key, rv := range state {
		out = append(out, key+"@"+rv)
	}
	slices.Sort(out)
	return out
}

// replay applies events to a state. Each has to continue the state before.
func replay(t reporter, from map[string]string, events []store.Event) map[string]string {
	t.Helper()
	state := maps.Clone(from)
	for _, e := range events {
		if e.Mark != nil {
			continue
		}
		old := ""
		if e.Old != nil {
			old = e.Old.Header.RV
		}
		if old != state[e.Key] {
			t.Errorf("an event of %.20s begins with %q, but %q was there", e.Key, old, state[e.Key])
		}
		if delete(state, e.Key); e.New != nil {
			state[e.Key] = e.New.Header.RV
		}
	}
	return state
}

// checkShort reports a deletion without the state of an object that was created and
// deleted inside its commit. last has the states before the deletions.
func checkShort(t reporter, events []store.Event, last map[string]string) {
	t.Helper()
	for _, e := range events {
		switch {
		case e.Mark != nil || e.New != nil || e.Old != nil:
			if e.Short != nil {
				t.Errorf("the event of %.20s with another state has a short-lived one", e.Key)
			}
		case last[e.RV] != "" && (e.Short == nil || !e.Short.IsKnown() || e.Short.Header.RV != last[e.RV]):
			t.Errorf("the deletion of %.20s @%s has %+v, want the state %s", e.Key, e.RV, e.Short, last[e.RV])
		}
	}
}
