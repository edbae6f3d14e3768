package storetest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/informctl/informctl/store"
)

var departedCases = []testCase{
	{"Order", testDepartedOrder},
	{"Recreated", testDepartedRecreated},
	{"Replaced", testDepartedReplaced},
	{"Reopened", testDepartedReopened},
	{"Settled", testDepartedSettled},
	{"SettledBeforeMore", testDepartedSettledBeforeMore},
	{"Unsettled", testDepartedUnsettled},
	{"SettledUpTo", testDepartedSettledUpTo},
	{"NotStored", testDepartedNotStored},
	{"Many", testDepartedMany},
}

// departer returns the store as a Departer, or skips the test.
func (h *harness) departer() store.Departer {
	h.Helper()
	d, ok := h.Store.(store.Departer)
	if !ok {
		h.Skip("the backend keeps no departed objects")
	}
	return d
}

// departs returns the deletion of a stored object that departs; last may be nil.
func departs(key string, last runtime.Object) store.Change {
	return store.Change{Key: key, Departs: true, Last: last}
}

// wantDeparted compares the departed objects with a higher number, as "key@rv last". It
// returns the highest number.
func (h *harness) wantDeparted(after uint64, want ...string) uint64 {
	h.Helper()
	var got []string
	for {
		chunk, err := h.departer().Departed(after, 2)
		must(h, err)
		for _, d := range chunk {
			if d.Number <= after {
				h.Errorf("number %d comes after %d", d.Number, after)
			}
			after = d.Number
			line := h.describeEntry(d.Before)
			if d.Last.Key != "" {
				line += " " + h.describeEntry(d.Last)
			}
			got = append(got, line)
		}
		if len(chunk) < 2 {
			break
		}
	}
	same(h, "departed objects", got, want)
	return after
}

func (h *harness) describeEntry(e store.Entry) string {
	h.Helper()
	obj, err := h.Decode(e)
	must(h, err)
	cm := obj.(*corev1.ConfigMap)
	return fmt.Sprintf("%s@%s", e.Key, cm.ResourceVersion)
}

func testDepartedOrder(h *harness) {
	h.listed(configMap("a/one", "1", "red"), configMap("a/two", "1", "red"), configMap("a/three", "1", "red"), configMap("a/four", "1", "red"))
	h.wantDeparted(0)
	h.apply("11", departs("a/two", configMap("a/two", "11", "blue")))
	h.apply("12", departs("a/one", nil), store.Change{Key: "a/four"})
	number := h.wantDeparted(0, "a/two@1 a/two@11", "a/one@1")
	must(h, h.Flush(h.Context()))
	if got := h.wantDeparted(0, "a/two@1 a/two@11", "a/one@1"); got != number {
		h.Errorf("the last number is %d, and was %d before it was written", got, number)
	}
	h.apply("13", departs("a/three", nil))
	h.wantDeparted(number, "a/three@1")
	h.wantObjects()
}

// testDepartedRecreated checks that another object can replace a departed one at once,
// and also after a change that was not written.
func testDepartedRecreated(h *harness) {
	h.listed(configMap("a/one", "1", "red"), configMap("a/two", "1", "red"))
	h.apply("11", store.Change{Object: configMap("a/one", "11", "new"), Departs: true, Last: configMap("a/one", "10", "red")})
	h.apply("12", departs("a/two", nil))
	h.apply("13", put(configMap("a/two", "13", "new")))
	h.apply("14", put(configMap("a/two", "14", "newer")))
	h.wantDeparted(0, "a/one@1 a/one@10", "a/two@1")
	must(h, h.Flush(h.Context()))
	h.apply("15", put(configMap("a/two", "15", "newest")))
	must(h, h.Flush(h.Context()))
	h.wantDeparted(0, "a/one@1 a/one@10", "a/two@1")
	h.wantObjects(configMap("a/one", "11", "new"), configMap("a/two", "15", "newest"))
}

// testDepartedReplaced checks that an object departs if a list has another one of its
// name.
func testDepartedReplaced(h *harness) {
	named := func(uid, rv string) *corev1.ConfigMap {
		cm := configMap("a/one", rv, "red")
		cm.UID = types.UID(uid)
		return cm
	}
	h.listed(named("first", "1"), configMap("a/two", "1", "red"))
	h.departer()
	h.applyParts(h.relist(named("second", "11"), configMap("a/two", "12", "red")), "12")
	h.wantDeparted(0, "a/one@1")
	must(h, h.Flush(h.Context()))
	h.wantDeparted(0, "a/one@1")
	h.applyParts(h.relist(named("second", "13"), configMap("a/two", "12", "red")), "13")
	h.wantDeparted(0, "a/one@1")
}

// testDepartedReopened checks that departed objects that were not settled are there in
// the next process.
func testDepartedReopened(h *harness) {
	h.listed(configMap("a/one", "1", "red"), configMap("a/two", "1", "red"))
	h.apply("11", departs("a/one", configMap("a/one", "11", "red")))
	h.reopen()
	number := h.wantDeparted(0, "a/one@1 a/one@11")
	h.apply("12", departs("a/two", nil))
	h.wantDeparted(number, "a/two@1")
	h.reopen()
	h.wantDeparted(0, "a/one@1 a/one@11", "a/two@1")
	if kept, dropped := h.departer().Departures(); kept != 2 || dropped != 0 {
		h.Errorf("Departures() = %d, %d, want 2 and 0", kept, dropped)
	}
}

// testDepartedSettled checks that settled objects are there until the scope is opened
// again.
func testDepartedSettled(h *harness) {
	h.listed(configMap("a/one", "1", "red"), configMap("a/two", "1", "red"))
	h.apply("11", departs("a/one", nil))
	h.departer().Settle()
	h.wantDeparted(0, "a/one@1")
	h.apply("12", departs("a/two", nil))
	must(h, h.Flush(h.Context()))
	h.wantDeparted(0, "a/one@1", "a/two@1")
	h.reopen()
	h.wantDeparted(0, "a/two@1")
	h.departer().Settle()
	h.reopen()
	h.wantDeparted(0)
	h.apply("13")
	h.reopen()
	if kept, _ := h.departer().Departures(); kept != 0 {
		h.Errorf("%d are kept after they were told of", kept)
	}
}

// testDepartedSettledBeforeMore checks that an object that departs after Settle, in the
// same transaction, is not settled.
func testDepartedSettledBeforeMore(h *harness) {
	h.listed(configMap("a/one", "1", "red"), configMap("a/two", "1", "red"))
	h.apply("11", departs("a/one", nil))
	h.departer().Settle()
	h.apply("12", departs("a/two", nil))
	h.reopen()
	h.wantDeparted(0, "a/two@1")
}

func testDepartedUnsettled(h *harness) {
	h.listed(configMap("a/one", "1", "red"), configMap("a/two", "1", "red"), configMap("a/three", "1", "red"))
	h.apply("11", departs("a/one", nil))
	h.departer().Settle()
	h.reopen()
	h.apply("12", departs("a/two", nil))
	h.departer().Settle()
	must(h, h.Flush(h.Context()))
	h.departer().Unsettle()
	h.apply("13", departs("a/three", nil))
	h.reopen()
	h.wantDeparted(0, "a/two@1", "a/three@1") // the first was settled before
}

// testDepartedSettledUpTo checks that a part of the objects can be settled, and less of
// them again, but not what was settled before the scope was opened.
func testDepartedSettledUpTo(h *harness) {
	d, ok := h.departer().(store.PartSettler)
	if !ok {
		h.Skip("the backend settles all or nothing")
	}
	h.listed(configMap("a/one", "1", "red"), configMap("a/two", "1", "red"), configMap("a/three", "1", "red"))
	var numbers []uint64
	for i, key := range []string{"a/one", "a/two", "a/three"} {
		h.apply(fmt.Sprint(11+i), departs(key, nil))
		numbers = append(numbers, d.LastDeparted())
	}
	d.SettleUpTo(numbers[2] + 1)
	must(h, h.Flush(h.Context()))
	d.SettleUpTo(numbers[0])
	h.reopen()
	h.wantDeparted(0, "a/two@1", "a/three@1")
	d = h.departer().(store.PartSettler) //nolint:forcetypeassert // as above
	if last := d.LastDeparted(); last != numbers[2] {
		h.Errorf("the last departed object has the number %d after a restart, want %d", last, numbers[2])
	}
	d.SettleUpTo(0)
	h.reopen()
	h.wantDeparted(0, "a/two@1", "a/three@1")
}

// testDepartedNotStored checks that an object that was never stored is not kept.
func testDepartedNotStored(h *harness) {
	h.listed(configMap("a/one", "1", "red"))
	h.apply("11", departs("a/never", nil))
	must(h, h.Flush(h.Context()))
	h.wantDeparted(0)
	h.wantObjects(configMap("a/one", "1", "red"))
}

func testDepartedMany(h *harness) {
	objects := many(500, "1", "red")
	h.listed(objects...)
	var want []string
	for i := range 500 {
		key := fmt.Sprintf("many/%05d", (i*7)%500)
		h.apply(fmt.Sprint(11+i), departs(key, nil))
		want = append(want, key+"@1")
		if i == 250 {
			must(h, h.Flush(h.Context()))
			h.wantDeparted(0, want...)
		}
	}
	h.wantDeparted(0, want...)
	h.reopen()
	h.wantDeparted(0, want...)
}
