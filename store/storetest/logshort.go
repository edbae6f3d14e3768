package storetest

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
)

func testLogCreatedAndDeleted(h *harness) {
	p := h.logged(configMap("a/one", "1", "red"))
	h.apply("11", put(configMap("a/short", "11", "red")))
	h.apply("12", gone("a/short", "12"))
	h.apply("13", gone("a/never", "13"))
	must(h, h.Flush(h.Context()))
	events, err := followed(h.Store, p)
	must(h, err)
	told := map[string]string{}
	for _, e := range events {
		if e.Mark == nil {
			told[e.Key] = describeEvent(h.Store, e)
		}
	}
	for key, want := range map[string]string{"a/short": "> - @12", "a/never": "- > - @13"} {
		if !strings.Contains(told[key], want) {
			h.Errorf("%s: told %q, want its deletion: who was told of it before has to know", key, told[key])
		}
	}
	h.wantObjects(configMap("a/one", "1", "red"))
}

// shorts returns the events of keys that were created and deleted, as describeEvent. An
// event of two commits, of which the first has created the object, has it as a short one.
func (h *harness) shorts(after store.Place, keys ...string) (lines []string) {
	h.Helper()
	events, err := followed(h.Store, after)
	must(h, err)
	for _, e := range events {
		if e.Mark != nil || e.New != nil || !slices.Contains(keys, e.Key) {
			continue
		}
		if e.Short == nil {
			e.Old, e.Short = nil, e.Old
		}
		lines = append(lines, describeEvent(h.Store, e))
		if _, ok := h.Store.(store.Payloader); ok && e.Short != nil {
			obj, err := h.Decode(e.Short.Entry)
			must(h, err)
			checkPayload(h, h.Store, e.Short.Entry, obj)
		}
	}
	return lines
}

// shortLived returns the deletion of an object whose creation the batch leaves out.
func shortLived(last runtime.Object, rv string) store.Change {
	key, _ := cache.MetaNamespaceKeyFunc(last)
	return store.Change{Key: key, RV: rv, Short: store.Entry{Key: key, Object: last}}
}

// testLogShort checks that an object that is created and deleted inside one commit leaves
// its last state.
func testLogShort(h *harness) {
	p := h.logged(configMap("a/one", "1", "red"))
	h.apply("11", put(configMap("a/short", "11", "red")))
	h.apply("12", put(configMap("a/short", "12", "blue")))
	h.apply("13", gone("a/short", "13"))
	h.apply("14", put(configMap(longKey, "14", "red")))
	h.apply("15", gone(longKey, "15"))
	h.apply("16", gone(longKey, "16")) // it is told again
	must(h, h.Flush(h.Context()))
	// The batch leaves out the creation.
	h.apply("20", shortLived(configMap("a/folded", "19", "red"), "20"))
	h.apply("21", gone("a/never", "21"))
	q := h.place()
	check := func() {
		h.Helper()
		want := []string{"a/short - > - @13 short 12", "a/folded - > - @20 short 19", "a/never - > - @21"}
		same(h, "short-lived objects", h.shorts(p, "a/short", "a/folded", "a/never"), want)
		if got := h.shorts(p, longKey); !slices.ContainsFunc(got, func(line string) bool { return strings.HasSuffix(line, " short 14") }) {
			h.Errorf("a long key: %.20q", got)
		}
		h.wantAt(p, "a/one@1")
		h.wantAt(q, "a/one@1")
		h.wantObjects(configMap("a/one", "1", "red"))
	}
	check()
	h.reopen()
	check()
	h.apply("30", put(configMap("a/short", "30", "red")))
	must(h, h.Flush(h.Context()))
	h.wantEvents(q, "a/short - > 30", "mark 30")
	h.wantAt(q, "a/one@1")
}

// testLogShortAndRecreated checks objects of one name inside one commit: the last one is
// kept.
func testLogShortAndRecreated(h *harness) {
	p := h.logged(configMap("a/one", "1", "red"))
	named := func(key, uid, rv string) store.Change {
		cm := configMap(key, rv, "red")
		cm.UID = types.UID(uid)
		return put(cm)
	}
	h.apply("11", named("a/short", "first", "11"), named("a/again", "first", "11"))
	h.apply("12", gone("a/short", "12"), gone("a/again", "12"))
	h.apply("13", named("a/short", "second", "13"), named("a/again", "second", "13"))
	h.apply("14", gone("a/short", "14"))
	must(h, h.Flush(h.Context()))
	lines := h.shorts(p, "a/short")
	if len(lines) == 0 || lines[len(lines)-1] != "a/short - > - @14 short 13" {
		h.Errorf("the last one has left %q", lines)
	}
	events, err := followed(h.Store, p)
	must(h, err)
	same(h, "what follows", describeState(replay(h, map[string]string{"a/one": "1"}, events)), []string{"a/again@13", "a/one@1"})
}

// testLogShortDeparts checks that an object that has departed and was never written is a
// short-lived one, also if another one replaces it.
func testLogShortDeparts(h *harness) {
	h.departer()
	p := h.logged(configMap("a/one", "1", "red"))
	h.apply("11", put(configMap("a/gone", "11", "red")), put(configMap("a/replaced", "11", "red")))
	h.apply("12", store.Change{Key: "a/gone", RV: "12", Departs: true})
	other := configMap("a/replaced", "13", "red")
	other.UID = "other"
	h.apply("13", store.Change{Object: other, Departs: true})
	must(h, h.Flush(h.Context()))
	h.wantDeparted(0, "a/gone@11", "a/replaced@11")
	same(h, "short-lived objects", h.shorts(p, "a/gone", "a/replaced"), []string{"a/gone - > - @12 short 11", "a/replaced - > - @ short 11"})
	events, err := followed(h.Store, p)
	must(h, err)
	same(h, "what follows", describeState(replay(h, map[string]string{"a/one": "1"}, events)), []string{"a/one@1", "a/replaced@13"})
}
