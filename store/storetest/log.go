package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
)

var logCases = []testCase{
	{"Events", testLogEvents},
	{"Random", testLogRandom},
	{"InsideACommit", testLogInsideACommit},
	{"CreatedAndDeleted", testLogCreatedAndDeleted},
	{"Short", testLogShort},
	{"ShortAndRecreated", testLogShortAndRecreated},
	{"ShortDeparts", testLogShortDeparts},
	{"Deletion", testLogDeletion},
	{"Frozen", testLogFrozen},
	{"List", testLogList},
	{"ListWithoutChanges", testLogListWithoutChanges},
	{"Stored", testLogStored},
	{"StoredAcrossAList", testLogStoredAcrossAList},
	{"Readable", testLogReadable},
	{"FollowEmpty", testLogFollowEmpty},
	{"Held", testLogHeld},
	{"FirstList", testLogFirstList},
	{"Recreated", testLogRecreated},
	{"CaughtUp", testLogCaughtUp},
	{"Rewound", testLogRewound},
	{"OtherPlaces", testLogOtherPlaces},
	{"ByTime", testLogByTime},
	{"Unchanged", testLogUnchanged},
	{"Waits", testLogWaits},
	{"Query", testLogQuery},
}

// logged stores a list, begins to follow, and returns the place after the list: a backend
// in memory keeps nothing before that.
func (h *harness) logged(objects ...runtime.Object) store.Place {
	h.Helper()
	h.listed(objects...)
	return h.follows()
}

func (h *harness) follows() store.Place {
	h.Helper()
	must(h, h.Flush(h.Context()))
	h.begins()
	return h.place()
}

// place returns the last place in the log, after everything is written.
func (h *harness) place() store.Place {
	h.Helper()
	must(h, h.Flush(h.Context()))
	log, err := h.History()
	must(h, err)
	if log.Last.IsZero() {
		h.Fatalf("the log has no mark")
	}
	return log.Last
}

// followed returns what follows a place, up to the end of the log. It checks that who
// follows some objects gets the same of them, and that the mark of the place is found.
func followed(s store.Store, after store.Place) (events []store.Event, err error) {
	if events, err = collected(s.Follow(ended(), after)); err != nil {
		return events, err
	}
	for _, e := range events {
		if e.Mark != nil {
			continue
		}
		namespace, name, _ := cache.SplitMetaNamespaceKey(e.Key)
		for _, f := range []store.LogFilter{{Names: []string{name}}, {Namespace: namespace}} {
			if err := followsSome(s, after, f, events); err != nil {
				return events, err
			}
		}
		break
	}
	if finder, ok := s.(store.MarkFinder); ok && !after.IsZero() {
		m, _, err := finder.MarkAt(after, false)
		if err == nil && after.Exact() && m.Mark != after.Mark {
			err = fmt.Errorf("it is %d", m.Mark)
		}
		if err != nil {
			return events, fmt.Errorf("the mark at %+v: %w", after, err)
		}
	}
	return events, nil
}

// followsSome checks that who follows some objects gets of them what who follows all has
// got, and the marks.
func followsSome(s store.Store, after store.Place, f store.LogFilter, events []store.Event) error {
	var want, got []string
	for _, e := range events {
		if e.Mark != nil || f.Matches(e.Key) {
			want = append(want, describeEvent(s, e))
		}
	}
	some, err := collected(store.FollowSome(ended(), s, after, f))
	for _, e := range some {
		got = append(got, describeEvent(s, e))
	}
	// The log may have grown since.
	if err == nil && (len(got) < len(want) || !slices.Equal(got[:len(want)], want)) {
		err = fmt.Errorf("%v, want %v", got, want)
	}
	if err != nil {
		return fmt.Errorf("changes of %+v: %w", f, err)
	}
	return nil
}

// ended returns a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// collected returns the events of a log that is followed with a context that has ended.
func collected(events iter.Seq2[store.Event, error]) (all []store.Event, err error) {
	for e, err := range events {
		if errors.Is(err, context.Canceled) {
			break
		}
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
	return all, nil
}

// describe returns an event as "key old -> new rv", with resource versions for states.
func describeEvent(s store.Store, e store.Event) string {
	state := func(v *store.Version) string {
		switch {
		case v == nil:
			return "-"
		case !v.IsKnown():
			return "?"
		}
		obj, err := s.Decode(v.Entry)
		if err != nil {
			return err.Error()
		}
		if rv := obj.(*corev1.ConfigMap).ResourceVersion; rv != v.Header.RV {
			return rv + " with the header of " + v.Header.RV
		}
		return v.Header.RV
	}
	if e.Mark != nil {
		return strings.TrimSpace("mark " + e.Mark.RV)
	}
	line := fmt.Sprintf("%s %s > %s", e.Key, state(e.Old), state(e.New))
	if e.New == nil {
		line += " @" + e.RV
	}
	if e.Short != nil {
		line += " short " + state(e.Short)
	}
	if e.Inside {
		line += " inside"
	}
	if !e.Since.IsZero() {
		line += " since"
	}
	return line
}

func (h *harness) wantEvents(after store.Place, want ...string) {
	h.Helper()
	events, err := followed(h.Store, after)
	must(h, err)
	var got []string
	for _, e := range events {
		got = append(got, describeEvent(h.Store, e))
	}
	same(h, "events", got, want)
}

func gone(key, rv string) store.Change { return store.Change{Key: key, RV: rv} }

func (h *harness) wantAt(at store.Place, want ...string) {
	h.Helper()
	got, err := objectsAt(h.Store, at)
	must(h, err)
	same(h, fmt.Sprintf("objects at %s", at), got, want)
}

// objectsAt returns the objects at a place, as "key@rv words".
func objectsAt(s store.Store, at store.Place) (got []string, err error) {
	objects, err := s.Objects(store.Query{At: at})
	for _, obj := range objects {
		got = append(got, describeConfigMap(obj.(*corev1.ConfigMap)))
	}
	slices.Sort(got)
	return got, err
}

func describeConfigMap(cm *corev1.ConfigMap) string {
	key := cm.Name
	if cm.Namespace != "" {
		key = cm.Namespace + "/" + key
	}
	return key + "@" + cm.ResourceVersion
}

func testLogEvents(h *harness) {
	p := h.logged(configMap("a/one", "1", "red"), configMap("a/two", "2", "red"))
	h.apply("11", put(configMap("a/two", "11", "blue")))
	must(h, h.Flush(h.Context()))
	h.apply("12", gone("a/one", "12"))
	must(h, h.Flush(h.Context()))
	h.apply("13", put(configMap("a/three", "13", "red")))
	must(h, h.Flush(h.Context()))
	h.wantEvents(p, "a/two 2 > 11", "mark 11", "a/one 1 > - @12", "mark 12", "a/three - > 13", "mark 13")
	h.wantAt(p, "a/one@1", "a/two@2")
	h.reopen()
	h.wantEvents(p, "a/two 2 > 11", "mark 11", "a/one 1 > - @12", "mark 12", "a/three - > 13", "mark 13")
	h.wantAt(p, "a/one@1", "a/two@2")
	h.wantAt(store.Place{RV: "11"}, "a/one@1", "a/two@11")
	h.wantAt(store.Place{RV: "12"}, "a/two@11")
	h.wantAt(h.place(), "a/three@13", "a/two@11")
}

// testLogInsideACommit checks what somebody gets who has seen a state inside a commit: A
// was @5 and @9 when it was written. No state of 7 exists.
func testLogInsideACommit(h *harness) {
	if !h.cfg.Persistent {
		h.Skip("each batch is a commit")
	}
	p := h.logged(configMap("a/a", "1", "red"), configMap("a/b", "1", "red"))
	h.apply("20", put(configMap("a/a", "20", "red")))
	h.apply("25", put(configMap("a/b", "25", "red")))
	h.apply("30", put(configMap("a/a", "30", "blue")))
	must(h, h.Flush(h.Context()))
	log, err := h.History()
	must(h, err)
	if log.Entries > 2 {
		h.Skip("the committer was faster")
	}
	h.wantEvents(p, "a/b 1 > 25", "a/a 1 > 30", "mark 30") // in the order of application
	h.wantEvents(store.Place{RV: "22"}, "a/b 1 > 25 inside", "a/a 1 > 30 inside", "mark 30")
	_, err = objectsAt(h.Store, store.Place{RV: "22"})
	wantIs(h, "a read inside a commit", err, store.ErrTrimmed)
	_, err = h.Keys(store.Query{At: store.Place{RV: "31"}})
	wantIs(h, "a read of what is not reached", err, store.ErrAhead)
}

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

func testLogDeletion(h *harness) {
	p := h.logged(configMap("a/one", "1", "red"))
	h.apply("15", gone("a/one", "15"))
	must(h, h.Flush(h.Context()))
	h.wantEvents(p, "a/one 1 > - @15", "mark 15")
	h.wantAt(store.Place{RV: "10"}, "a/one@1")
	h.wantAt(store.Place{RV: "15"})
}

// testLogFrozen checks a batch without a resource version: it can be followed, and not be
// read by resource version.
func testLogFrozen(h *harness) {
	p := h.logged(configMap("a/one", "1", "red"))
	h.apply("", put(configMap("a/one", "12", "blue")))
	frozen := h.place()
	h.wantEvents(p, "a/one 1 > 12", "mark 10")
	_, err := objectsAt(h.Store, frozen)
	wantIs(h, "a read at a frozen mark", err, store.ErrTrimmed)
	h.wantAt(store.Place{RV: "10"}, "a/one@1")
	h.apply("13", put(configMap("a/one", "13", "red")))
	must(h, h.Flush(h.Context()))
	h.wantEvents(frozen, "a/one 12 > 13", "mark 13")
	h.wantAt(store.Place{RV: "13"}, "a/one@13")
}

// testLogList checks that what a list changes can be followed, and that there is no state
// inside of it.
func testLogList(h *harness) {
	p := h.logged(configMap("a/one", "1", "red"), configMap("a/two", "1", "red"), configMap("a/same", "1", "red"))
	must(h, h.Invalidate(h.Context(), "expired"))
	h.applyParts(h.relist(configMap("a/two", "18", "blue"), configMap("a/same", "1", "red"), configMap("a/three", "19", "red")), "20")
	must(h, h.Flush(h.Context()))
	events, err := followed(h.Store, p)
	must(h, err)
	var got []string
	for _, e := range events {
		if e.Mark == nil {
			got = append(got, strings.TrimSuffix(describeEvent(h.Store, e), " since"))
		}
	}
	slices.Sort(got)
	same(h, "changes", got, []string{"a/one 1 > - @", "a/three - > 19", "a/two 1 > 18"})
	for _, rv := range []string{"11", "19"} {
		_, err := objectsAt(h.Store, store.Place{RV: rv})
		wantIs(h, "a read inside the list at "+rv, err, store.ErrTrimmed)
		_, err = followed(h.Store, store.Place{RV: rv})
		wantIs(h, "to follow from inside the list at "+rv, err, store.ErrTrimmed)
	}
	h.wantAt(p, "a/one@1", "a/same@1", "a/two@1")
	h.wantAt(h.place(), "a/same@1", "a/three@19", "a/two@18")
}

// testLogListWithoutChanges checks that nobody resumes across a list, even if it has
// changed nothing: a client ahead of the store may hold an object that is gone.
func testLogListWithoutChanges(h *harness) {
	p := h.logged(configMap("a/one", "1", "red"))
	must(h, h.Invalidate(h.Context(), "expired"))
	h.applyParts(h.relist(configMap("a/one", "1", "red")), "20")
	must(h, h.Flush(h.Context()))
	_, err := followed(h.Store, store.Place{RV: "12"})
	wantIs(h, "to follow from inside the list", err, store.ErrTrimmed)
	h.wantEvents(p, "mark 20")
	h.wantAt(store.Place{RV: "20"}, "a/one@1")
}

func (h *harness) wantStored(want string) {
	h.Helper()
	must(h, h.Flush(h.Context()))
	log, err := h.History()
	must(h, err)
	same(h, "Stored", log.Stored, want)
}

// testLogStored checks up to where nothing has changed since the last mark.
func testLogStored(h *harness) {
	h.logged(configMap("a/one", "1", "red"))
	h.wantStored("10")
	h.apply("15")
	h.wantStored("15")
	h.reopen()
	h.wantStored("15")
	h.apply("", put(configMap("a/one", "16", "blue")))
	h.wantStored("15")
	h.apply("17")
	h.wantStored("15")
	h.apply("18", put(configMap("a/one", "18", "red")))
	h.apply("19")
	h.wantStored("19")
	must(h, h.Invalidate(h.Context(), "expired"))
	h.wantStored("19")
	h.apply("", put(configMap("a/one", "20", "blue")))
	h.wantStored("")
}

// testLogStoredAcrossAList checks that who was told the stored resource version can go on
// from it across a list, however that begins, and that nobody else can.
func testLogStoredAcrossAList(h *harness) {
	h.logged(configMap("a/one", "1", "red"))
	expire := []func(rv string){
		func(string) {}, // the list says so itself
		func(string) { must(h, h.Invalidate(h.Context(), "expired")) },
		func(string) { must(h, h.Apply(store.Batch{Reason: "expired"})) },
		func(rv string) {
			must(h, h.Apply(store.Batch{Reason: "expired", Changes: []store.Change{put(configMap("a/new", rv, "red"))}}))
		},
	}
	for i, begin := range expire {
		rv := func(n int) string { return strconv.Itoa(100*(i+1) + n) }
		h.apply(rv(0), put(configMap("a/one", rv(0), "red")), store.Change{Key: "a/new"})
		h.place()
		h.apply(rv(15))
		h.wantStored(rv(15))
		begin(rv(16))
		h.applyParts(h.relist(configMap("a/one", rv(18), "blue")), rv(20))
		h.wantStored(rv(20))
		for _, from := range []string{rv(12), rv(15)} {
			events, err := followed(h.Store, store.Place{RV: from})
			must(h, err)
			state := replay(h, map[string]string{"a/one": rv(0)}, events)
			same(h, "what follows "+from, describeState(state), []string{"a/one@" + rv(18)})
		}
		h.wantAt(store.Place{RV: rv(12)}, "a/one@"+rv(0))
		h.wantAt(store.Place{RV: rv(15)}, "a/one@"+rv(0))
		if _, err := followed(h.Store, store.Place{RV: rv(16)}); i > 0 {
			wantIs(h, "to follow from inside the list", err, store.ErrTrimmed)
		}
	}
}

// testLogReadable checks the newest place that can be read by resource version.
func testLogReadable(h *harness) {
	want := func(want string, objects ...string) {
		h.Helper()
		must(h, h.Flush(h.Context()))
		log, err := h.History()
		must(h, err)
		same(h, "Readable", log.Readable.RV, want)
		if want != "" {
			h.wantAt(log.Readable, objects...)
			h.wantAt(store.Place{RV: log.Readable.RV}, objects...)
		}
	}
	h.begins()
	want("")
	h.listed(configMap("a/one", "1", "red"))
	want("10", "a/one@1")
	h.apply("11", put(configMap("a/one", "11", "blue")))
	want("11", "a/one@11")
	h.apply("", put(configMap("a/one", "12", "red")))
	want("11", "a/one@11")
	h.reopen()
	want("11", "a/one@11")
	h.apply("13", put(configMap("a/one", "13", "red")))
	want("13", "a/one@13")
	h.apply("15")
	must(h, h.Flush(h.Context()))
	must(h, h.Invalidate(h.Context(), "expired"))
	want("15", "a/one@13")
	h.apply("", put(configMap("a/two", "16", "red")))
	want("15", "a/one@13")
	h.applyParts(h.relist(configMap("a/two", "16", "red")), "20")
	want("20", "a/two@16")
	must(h, h.Apply(store.Batch{Reason: "history was rewound", Rewound: true}))
	want("")
}

// testLogFollowEmpty checks that a follower of a scope without content gets what comes.
func testLogFollowEmpty(h *harness) {
	told := make(chan string, 10)
	begun := make(chan struct{})
	go func() {
		close(begun)
		for e, err := range h.Follow(h.Context(), store.Place{}) {
			if err != nil {
				told <- err.Error()
				return
			}
			told <- describeEvent(h.Store, e)
		}
	}()
	<-begun
	h.apply("11", put(configMap("a/one", "11", "red")))
	must(h, h.Flush(h.Context()))
	h.apply("12", put(configMap("a/two", "12", "red")))
	must(h, h.Flush(h.Context()))
	for got := range told {
		if got == "mark 12" {
			break
		}
		if strings.Contains(got, "store:") {
			h.Fatalf("told %s", got)
		}
	}
	must(h, h.db.Close())
}

// testLogHeld checks a resource version that is taken back after a list, as for an object
// that could not be stored: what follows can be followed, and is no list.
func testLogHeld(h *harness) {
	p := h.logged(configMap("a/one", "1", "red"))
	must(h, h.Invalidate(h.Context(), "an object is missing"))
	h.apply("", put(configMap("a/one", "12", "blue")))
	held := h.place()
	h.wantEvents(p, "a/one 1 > 12", "mark")
	_, err := objectsAt(h.Store, held)
	wantIs(h, "a read at a mark that is held back", err, store.ErrTrimmed)
	_, err = objectsAt(h.Store, store.Place{Time: time.Now()})
	wantIs(h, "a read at its time", err, store.ErrTrimmed)
	h.wantAt(p, "a/one@1")
}

// testLogFirstList checks that what a first list loads is not logged.
func testLogFirstList(h *harness) {
	h.begins()
	h.applyParts(h.relist(many(300, "1", "red")...), "10")
	must(h, h.Flush(h.Context()))
	log, err := h.History()
	must(h, err)
	if log.Entries != 0 {
		h.Errorf("the log of a first list has %d entries", log.Entries)
	}
	p := h.place()
	h.apply("11", put(configMap("a/one", "11", "red")))
	must(h, h.Flush(h.Context()))
	h.wantEvents(p, "a/one - > 11", "mark 11")
	events, err := followed(h.Store, store.Place{})
	must(h, err)
	if len(events) == 0 || events[0].Mark == nil || !events[0].Mark.Begins {
		h.Errorf("the log begins with %+v, want a mark that says so", events[:min(1, len(events))])
	}
}

// begins begins to follow a scope that may be empty.
func (h *harness) begins() {
	ctx, cancel := context.WithCancel(h.Context())
	cancel()
	for _, err := range h.Follow(ctx, store.Place{}) {
		if err != nil {
			wantIs(h, "Follow", err, context.Canceled)
		}
	}
}

func testLogRecreated(h *harness) {
	one := configMap("a/one", "1", "red")
	one.UID = types.UID("first")
	p := h.logged(one)
	other := configMap("a/one", "12", "red")
	other.UID = types.UID("second")
	h.apply("12", put(other))
	must(h, h.Flush(h.Context()))
	h.wantEvents(p, "a/one 1 > - @", "a/one - > 12", "mark 12")
}

// testLogCaughtUp checks that changes that were made while nobody looked have an
// interval.
func testLogCaughtUp(h *harness) {
	if !h.cfg.Persistent {
		h.Skip("nothing is caught up on without a file")
	}
	p := h.logged(configMap("a/one", "1", "red"))
	before := time.Now()
	h.reopen()
	b := store.Batch{RV: "11", Changes: []store.Change{put(configMap("a/one", "11", "blue"))}, CatchUp: true}
	must(h, h.Apply(b))
	must(h, h.Flush(h.Context()))
	h.apply("12", put(configMap("a/one", "12", "red")))
	must(h, h.Flush(h.Context()))
	h.wantEvents(p, "a/one 1 > 11 since", "mark 11", "a/one 11 > 12", "mark 12")
	events, err := followed(h.Store, p)
	must(h, err)
	if since := events[0].Since; since.After(before) {
		h.Errorf("changed since %s, want the time when it was last current, before %s", since, before)
	}
}

// testLogRewound checks that places before a rewind are of another lineage.
func testLogRewound(h *harness) {
	p := h.logged(configMap("a/one", "1", "red"))
	h.apply("11", put(configMap("a/one", "11", "blue")))
	must(h, h.Flush(h.Context()))
	must(h, h.Apply(store.Batch{Reason: "history was rewound", Rewound: true}))
	must(h, h.Flush(h.Context()))
	h.applyParts(h.relist(configMap("a/one", "4", "green")), "5")
	must(h, h.Flush(h.Context()))
	_, err := followed(h.Store, p)
	wantIs(h, "to follow from before a rewind", err, store.ErrLineage)
	_, err = objectsAt(h.Store, p)
	wantIs(h, "a read before a rewind", err, store.ErrLineage)
	_, err = followed(h.Store, store.Place{RV: "5"})
	wantIs(h, "a resource version that the other history has reached", err, store.ErrTrimmed)
	q := h.place()
	h.apply("6", put(configMap("a/two", "6", "red")))
	must(h, h.Flush(h.Context()))
	h.wantEvents(q, "a/two - > 6", "mark 6")
	h.wantAt(q, "a/one@4")
}

func testLogOtherPlaces(h *harness) {
	p := h.logged(configMap("a/one", "1", "red"))
	for _, other := range []store.Place{
		{Lineage: "other", Mark: p.Mark, Random: p.Random},
		{Lineage: p.Lineage, Mark: p.Mark, Random: p.Random + 1}, // of a copy of the file
		{Lineage: p.Lineage, Mark: p.Mark + 1000, Random: p.Random},
	} {
		_, err := followed(h.Store, other)
		wantIs(h, "Follow from "+other.String(), err, store.ErrLineage)
		_, err = objectsAt(h.Store, other)
		wantIs(h, "read at "+other.String(), err, store.ErrLineage)
	}
	parsed, err := store.ParsePlace(p.String())
	must(h, err)
	h.wantEvents(parsed)
	h.wantAt(parsed, "a/one@1")
	for _, bad := range []string{"", "a", "a.b", ".1.2", "a.!.2", "a.1.2.3"} {
		if _, err := store.ParsePlace(bad); err == nil {
			h.Errorf("ParsePlace(%q) has no error", bad)
		}
	}
	_, err = objectsAt(h.Store, store.Place{RV: "abc"})
	wantIs(h, "a resource version that does not compare", err, store.ErrTrimmed)
	_, err = objectsAt(h.Store, store.Place{RV: "1"})
	wantIs(h, "a resource version before the log", err, store.ErrTrimmed)
}

func testLogByTime(h *harness) {
	p := h.logged(configMap("a/one", "1", "red"))
	h.wantAt(store.Place{Time: time.Now()}, "a/one@1")
	_, err := objectsAt(h.Store, store.Place{Time: p.Time.Add(-time.Nanosecond)})
	wantIs(h, "a time before the log", err, store.ErrTrimmed)
	h.apply("11", put(configMap("a/one", "11", "blue")))
	q := h.place()
	if q.Time.After(p.Time) {
		h.wantAt(store.Place{Time: q.Time.Add(-time.Nanosecond)}, "a/one@1")
	}
	h.wantAt(store.Place{Time: time.Now()}, "a/one@11")
}

// testLogUnchanged checks that an object that is stored again as it was is not logged.
func testLogUnchanged(h *harness) {
	p := h.logged(configMap("a/one", "1", "red"))
	h.apply("11", put(configMap("a/one", "1", "red")))
	must(h, h.Flush(h.Context()))
	h.apply("12", put(configMap("a/two", "12", "red")))
	must(h, h.Flush(h.Context()))
	h.wantEvents(p, "a/two - > 12", "mark 12")
	h.wantAt(store.Place{RV: "11"}, "a/one@1")
}

// testLogWaits checks that Follow waits, ends with its context, and ends when the backend
// closes.
func testLogWaits(h *harness) {
	p := h.logged(configMap("a/one", "1", "red"))
	told := make(chan string)
	ended := make(chan error, 1)
	go func() {
		for e, err := range h.Follow(h.Context(), p) {
			if err != nil {
				ended <- err
				return
			}
			told <- describeEvent(h.Store, e)
		}
	}()
	for i, rv := range []string{"11", "12", "13"} {
		h.apply(rv, put(configMap(fmt.Sprint("a/", i), rv, "red")))
		must(h, h.Flush(h.Context()))
		same(h, "told", []string{<-told, <-told}, []string{fmt.Sprintf("a/%d - > %s", i, rv), "mark " + rv})
	}
	must(h, h.db.Close())
	wantIs(h, "the end of the backend", <-ended, store.ErrClosed)
}
