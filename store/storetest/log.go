package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

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
	{"Unfrozen", testLogUnfrozen},
	{"FirstList", testLogFirstList},
	{"Recreated", testLogRecreated},
	{"CaughtUp", testLogCaughtUp},
	{"Rewound", testLogRewound},
	{"RewoundUnread", testLogRewoundUnread},
	{"RewoundUnsaid", testLogRewoundUnsaid},
	{"OtherPlaces", testLogOtherPlaces},
	{"ByTime", testLogByTime},
	{"Unchanged", testLogUnchanged},
	{"Waits", testLogWaits},
	{"Query", testLogQuery},
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
			got = append(got, describeEvent(h.Store, e))
		}
	}
	slices.Sort(got)
	same(h, "changes", got, []string{"a/one 1 > - @ since", "a/three - > 19 since", "a/two 1 > 18 since"})
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

// testLogUnfrozen checks that what was stored without a resource version can be read
// again when it gets one, though nothing changes then.
func testLogUnfrozen(h *harness) {
	p := h.logged(configMap("a/one", "1", "red"))
	h.apply("", put(configMap("a/one", "12", "blue")))
	must(h, h.Flush(h.Context()))
	frozen := h.place()
	_, err := objectsAt(h.Store, frozen)
	wantIs(h, "a read at a mark that is newer than its resource version", err, store.ErrTrimmed)
	h.apply("12")
	must(h, h.Flush(h.Context()))
	now := h.place()
	h.wantAt(now, "a/one@12")
	h.wantEvents(p, "a/one 1 > 12", "mark 10", "mark 12")
	h.apply("13")
	must(h, h.Flush(h.Context()))
	if after := h.place(); after != now {
		h.Errorf("a bookmark has got a mark, %s after %s", after, now)
	}
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
	p := h.logged(configMap("a/one", "1", "red"))
	before := time.Now()
	if h.cfg.Persistent {
		h.reopen()
	}
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

// testLogRewoundUnread checks that what a history has reached is known after a rewind
// that is told while the content has no resource version.
func testLogRewoundUnread(h *harness) {
	h.logged(configMap("a/one", "1", "red"))
	h.apply("20", put(configMap("a/one", "20", "red")))
	must(h, h.Flush(h.Context()))
	must(h, h.Invalidate(h.Context(), "an object could not be stored"))
	h.apply("", put(configMap("a/one", "21", "blue")))
	must(h, h.Flush(h.Context()))
	must(h, h.Apply(store.Batch{Reason: "history was rewound", Rewound: true}))
	must(h, h.Flush(h.Context()))
	h.wantReachedBefore()
}

// testLogRewoundUnsaid checks the same of a list that is of an earlier state although
// nobody has said that the history was rewound.
func testLogRewoundUnsaid(h *harness) {
	h.logged(configMap("a/one", "1", "red"))
	h.apply("20", put(configMap("a/one", "20", "red")))
	must(h, h.Flush(h.Context()))
	must(h, h.Invalidate(h.Context(), "an object could not be stored"))
	h.wantReachedBefore()
}

// wantReachedBefore lists at a resource version below 20, which the history before has
// reached, goes on above, and wants that 15 is not taken for one of the new history.
func (h *harness) wantReachedBefore() {
	h.Helper()
	h.applyParts(h.relist(configMap("a/one", "4", "green")), "5")
	must(h, h.Flush(h.Context()))
	h.apply("30", put(configMap("a/two", "30", "red")))
	must(h, h.Flush(h.Context()))
	_, err := followed(h.Store, store.Place{RV: "15"})
	wantIs(h, "a resource version that the other history has reached", err, store.ErrTrimmed)
	if state, err := h.History(); err != nil || state.Above != "20" {
		h.Errorf("only resource versions above %q are looked up, want 20 (%v)", state.Above, err)
	}
	if events, err := followed(h.Store, store.Place{RV: "30"}); err != nil || len(events) > 0 {
		h.Errorf("from 30: %v, %v", events, err)
	}
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
