package informer_test

import (
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"pgregory.net/rapid"
)

// comparison is the drop-in proof (promise 7). It plays one script of events on
// client-go's informer and on ours, and compares their visible state after every line:
// the notifications of handlers and their order, the objects and indexes of the store,
// resource versions, what has synced, and which calls return an error. Each informer must
// also keep the guarantees to handlers (checkGuarantees), ours across a restart.
//
// The package documentation lists the intended differences. For each, one function here
// accepts this difference and nothing else, and checks what our informer promises
// instead. In the table, "ours" is our informer.
//
//	fewerRelists      ours resumes a watch where client-go's lists
//	toldAllChanges    and then sends each change in order, not only the last state
//	nothingUnchanged  client-go's repeats every object after a list
//	initialsFirst     client-go's sends no change before all initial adds
//	anyRelistOrder    which deletions come first, and which changes after them
//	transformOnce     client-go's transforms the objects of a streamed list twice
//	lastGoodState     client-go's drops objects for which its transform fails
//	mayLag            the resource version, if ours has resumed
//	resyncsGoOn       client-go's periods restart with every list
//	syncedLater       the same, and ours has synced after those changes
//	hearsOfFailures   client-go's watch error handler misses some
//	ownIndexers       client-go's adds to the map that it received
//
// Differences that no script can show have their own tests: TestDifference in
// differences_test.go.
type comparison struct {
	shifted bool            // resyncs come at different times
	lagging bool            // only client-go's has listed since the last change
	loose   map[string]bool // handlers that have yet to receive a list of one of both
	dropped map[string]bool // handlers that were removed or stopped in a call
}

// step compares the results of a command.
func (c *comparison) step(want, got step) (faults []string) {
	faults = ours(got)
	for _, fault := range want.faults {
		faults = append(faults, "client-go's: "+fault)
	}
	if got.command == nextStart {
		return faults
	}
	faults = append(faults, c.fewerRelists(want, got)...)
	faults = append(faults, transformOnce(want, got)...)
	faults = append(faults, hearsOfFailures(want, got)...)
	c.shifted = c.shifted || isBreak(got.command) || got.command == "hold"
	c.mayLag(want, &got)
	c.syncedLater(want, got)
	wanted, shown := want.seen, got.seen
	wanted.Told, shown.Told = map[string][]string{}, map[string][]string{}
	for name, state := range got.handlers {
		first := strings.Join(slices.Concat(want.seen.Told[name], got.seen.Told[name]), "\n")
		if state.blocked && (want.listed || got.listed || (got.seen.Stopped || state.removed) && strings.HasPrefix(first, "initial ")) {
			c.loose[name] = true
		}
		if want.listed != got.listed || c.loose[name] { // toldAllChanges has checked ours
			c.loose[name] = got.seen.Stopped || state.blocked && got.seen.Told[name] == nil
			continue
		}
		dropResyncs := c.shifted || state.late
		wanted.Told[name] = normalized(want, sameButUnchanged(want.seen.Told[name]), dropResyncs)
		shown.Told[name] = normalized(got, got.seen.Told[name], dropResyncs)
	}
	if !reflect.DeepEqual(wanted, shown) { // much faster than the code below
		faults = append(faults, "-client-go +ours:\n"+cmp.Diff(wanted, shown))
	}
	return faults
}

// ours checks what must hold for our informer, whatever client-go's does.
func ours(got step) (faults []string) {
	faults = append(faults, got.faults...)
	faults = append(faults, lastGoodState(got)...)
	if got.command == nextStart {
		return faults
	}
	faults = append(faults, nothingUnchanged(got)...)
	faults = append(faults, toldAllChanges(got)...)
	faults = append(faults, resyncsGoOn(got)...)
	return append(faults, ownIndexers(got)...)
}

func faultIf(broken bool, format string, args ...any) []string {
	if broken {
		return []string{fmt.Sprintf(format, args...)}
	}
	return nil
}

// fewerRelists checks that ours lists only if client-go's does, or has done so since the
// resource version that ours knows: a server without bookmarks may have lost that
// history.
func (c *comparison) fewerRelists(want, got step) []string {
	return faultIf(got.listed && !want.listed && !got.bad && !c.lagging, "listed, and client-go's did not")
}

// toldAllChanges checks that ours sends all changes of the server, in order, unless it
// has listed.
func toldAllChanges(got step) (faults []string) {
	if !got.settled || got.listed || got.seen.Stopped {
		return nil
	}
	for name, state := range got.handlers {
		if state.blocked || state.removed || state.twice {
			continue
		}
		var want []string
		if state.added {
			for _, view := range got.before {
				want = append(want, "initial "+view)
			}
		}
		want = append(want, got.history...)
		told := normalized(got, got.seen.Told[name], true)
		faults = append(faults, faultIf(!slices.Equal(inOrder(got, want), told), "%s was told %q of %q", name, told, want)...)
	}
	return faults
}

// lastGoodState checks that the store has the server's objects, and the previous state of
// an object for which the transform fails.
func lastGoodState(got step) []string {
	if !got.seen.Synced["the informer"] || got.held || got.seen.Stopped {
		return nil
	}
	same := slices.Equal(got.present, got.seen.Store)
	return faultIf(!same, "the server has %q, the store %q", got.present, got.seen.Store)
}

// nothingUnchanged checks that ours sends no object in the state that it sent last.
func nothingUnchanged(got step) (faults []string) {
	for name, lines := range got.seen.Told {
		kept := sameButUnchanged(lines)
		faults = append(faults, faultIf(len(kept) != len(lines), "%s was told of objects that have not changed: %q", name, lines)...)
	}
	return faults
}

var unchanged = regexp.MustCompile(`^update (\S+) (\S+)$`)

// sameButUnchanged drops updates to the same resource version.
func sameButUnchanged(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		m := unchanged.FindStringSubmatch(line)
		return m != nil && m[1] == m[2]
	})
}

// transformOnce checks that ours calls the transform once per event, and for a list not
// more often than client-go's, unless a list failed on the way. lastGoodState causes more
// calls.
func transformOnce(want, got step) []string {
	switch {
	case got.bad || got.calls+want.calls == 0:
		return nil
	case got.settled && !got.listed:
		return faultIf(got.calls != len(got.history), "%d events were transformed %d times", len(got.history), got.calls)
	case want.listed && !strings.Contains(got.command, "fail") && !strings.Contains(got.command, "instream"):
		return faultIf(got.calls > want.calls, "transformed %d times, client-go's %d", got.calls, want.calls)
	}
	return nil
}

// hearsOfFailures checks that ours calls the watch error handler whenever client-go's
// does.
func hearsOfFailures(want, got step) []string {
	return faultIf(want.failures > 0 && got.failures == 0, "client-go's watch error handler was called, ours was not")
}

// ownIndexers checks that ours does not change the map that it received.
func ownIndexers(got step) []string {
	return faultIf(got.callersMap != 2, "the caller's Indexers have %d names, not the 2 that it gave", got.callersMap)
}

// resyncsGoOn checks that the resync periods of ours continue while the server is away or
// receives a list.
func resyncsGoOn(got step) (faults []string) {
	if !got.settled || got.elapsed < time.Minute || got.seen.Stopped {
		return nil
	}
	for name, state := range got.handlers {
		if state.added || state.removed || state.blocked {
			continue
		}
		most := 0
		if state.period > 0 {
			most = int(got.elapsed/state.period) + 1
		}
		for _, last := range got.present {
			if !slices.Contains(got.before, last) {
				continue // it was changed meanwhile
			}
			n := 0
			for _, line := range got.seen.Told[name] {
				if line == "resync "+last {
					n++
				}
			}
			faults = append(faults, faultIf(n > most || n < most-2, "%s: %s was resynced %d times in %s with a period of %s", name, last, n, got.elapsed, state.period)...)
		}
	}
	return faults
}

// mayLag lets the resource version of ours be older: client-go's has that of its list,
// ours that of the last event or bookmark.
func (c *comparison) mayLag(want step, got *step) {
	switch {
	case want.listed && !got.listed:
		c.lagging = true
	case got.held || got.seen.Stopped:
	case got.listed || len(got.history) > 0:
		c.lagging = false
	}
	for _, rvs := range [][2]*string{{&want.seen.StoreRV, &got.seen.StoreRV}, {&want.seen.RV, &got.seen.RV}} {
		if (c.lagging || got.bad) && number(*rvs[1]) < number(*rvs[0]) {
			*rvs[1] = *rvs[0]
		}
	}
}

// syncedLater lets a handler of ours sync later than client-go's while it is in a call:
// it must also return from the changes that came with its initial adds. A handler that
// was removed or stopped in that call never syncs.
func (c *comparison) syncedLater(want, got step) {
	for name, state := range got.handlers {
		if state.added {
			c.dropped[name] = false
		}
		if state.blocked && (state.removed || got.seen.Stopped) {
			c.dropped[name] = true
		}
		if (state.busy || c.dropped[name]) && want.seen.Synced[name] {
			got.seen.Synced[name] = true
		}
	}
}

func number(rv string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(rv, "v")) // "" means 0
	return n
}

// normalized converts the notifications of a handler into a form in which both informers
// agree.
func normalized(st step, lines []string, dropResyncs bool) []string {
	lines = slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		return dropResyncs && strings.HasPrefix(line, "resync ")
	})
	return inOrder(st, lines)
}

// inOrder sorts the notifications whose order depends on the store, which has none:
// initial adds, consecutive resyncs, and the changes of a list.
func inOrder(st step, lines []string) []string {
	lines = initialsFirst(lines)
	for from := 0; from < len(lines); from++ {
		to := from
		for to < len(lines) && strings.HasPrefix(lines[to], "resync ") {
			to++
		}
		slices.Sort(lines[from:to])
		from = max(from, to-1)
	}
	if st.held { // changes after the list cannot be distinguished from it
		slices.SortStableFunc(lines, func(a, b string) int {
			return strings.Compare(keyOf(toldLine.FindStringSubmatch(a)[2]), keyOf(toldLine.FindStringSubmatch(b)[2]))
		})
	} else if st.listed {
		anyRelistOrder(lines)
	}
	return lines
}

// initialsFirst lets ours send changes between the initial adds of other objects. The
// notifications of one object stay in order.
func initialsFirst(lines []string) []string {
	var initials, others []string
	changed := map[string]bool{}
	for _, line := range lines {
		key := keyOf(toldLine.FindStringSubmatch(line)[2])
		if strings.HasPrefix(line, "initial ") && !changed[key] {
			initials = append(initials, line)
			continue
		}
		changed[key] = true
		others = append(others, line)
	}
	slices.Sort(initials)
	return append(initials, others...)
}

// anyRelistOrder sorts the deletions after the initial adds, and the changes after these
// deletions. A deletion after a change keeps its place.
func anyRelistOrder(lines []string) {
	for _, kind := range []string{"initial ", "delete tombstone "} {
		n := 0
		for n < len(lines) && strings.HasPrefix(lines[n], kind) {
			n++
		}
		slices.Sort(lines[:n])
		lines = lines[n:]
	}
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "delete ") }) {
		slices.Sort(lines)
	}
}

// differences plays a script on client-go's informer and on ours, and returns the first
// difference.
func differences(t *testing.T, script []string, informers map[string]makeInformer) string {
	t.Helper()
	var want []step
	played := make(map[string]*[]step, len(informers))
	var plays sync.WaitGroup
	alone := slices.ContainsFunc(script, func(line string) bool { return verb(line) == "rewind" })
	if !alone {
		plays.Go(func() { want = play(t, script, clientGo) })
	}
	for name, construct := range informers {
		got := new([]step)
		played[name] = got
		plays.Go(func() { *got = play(t, script, construct) })
	}
	plays.Wait()
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(played)) {
		c := comparison{loose: map[string]bool{}, dropped: map[string]bool{}}
		for i, got := range *played[name] {
			faults := ours(got)
			if i < len(want) {
				faults = c.step(want[i], got)
			}
			if len(faults) > 0 {
				fmt.Fprintf(&out, "%s, step %d, %s:\n%s\n", name, i, got.command, strings.Join(faults, "\n"))
				break
			}
		}
	}
	return out.String()
}

// TestTracesLarge compares with more objects than one page of a list contains or a
// handler takes at a time, and with more changes than a handler queue holds decoded.
func TestTracesLarge(t *testing.T) {
	quietErrors(t)
	script := []string{
		"fill 550", "handler h1", "run", "handler h2", "block h2", "burst put o-0001 2; drop o-0300; put o-0549 2",
		"fill 550", "fill 550", "fill 550", "unblock h2", "gap put o-0002 2; drop o-0500; recreate o-0540 3; put z 1; expire", "handler h3", "put a 1",
	}
	for server, construct := range map[string]makeInformer{"server nostream": onBolt(t.TempDir()), "server nobookmarks": onMem, "server": onWire(onBolt(t.TempDir()))} {
		if diff := differences(t, slices.Concat([]string{server}, script), map[string]makeInformer{"ours": construct}); diff != "" {
			t.Errorf("%s:\n%s", server, diff)
		}
	}
}

var scripts = flag.Int("informer.scripts", 500/fewer, "how many generated scripts to compare with client-go's informer")

// TestTracesGenerated compares generated scripts. On a failure, rapid prints the seed and
// the smallest script that shows it.
func TestTracesGenerated(t *testing.T) {
	quietErrors(t)
	persistent := onBolt(t.TempDir())
	wire := onWire(onBolt(t.TempDir()))
	if err := flag.Set("rapid.checks", strconv.Itoa(*scripts)); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		script := drawScript(rt)
		informers := map[string]makeInformer{"mem": onMem, "bolt": persistent}
		// A client sends a request that ended with EOF again, so that nobody hears of it.
		if isOverWire := rapid.IntRange(0, 2).Draw(rt, "over the wire") == 0; isOverWire && !slices.Contains(script, "faillist eof") {
			informers["wire"] = wire
		}
		if diff := differences(t, script, informers); diff != "" {
			rt.Fatalf("script:\n%s\n%s", strings.Join(script, "\n"), diff)
		}
	})
}

// TestTraces compares the scripts of testdata, whose traces a reviewer can read: each
// file has the script and the notifications of our informer's handlers.
func TestTraces(t *testing.T) {
	quietErrors(t)
	files, err := filepath.Glob("testdata/traces/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no traces: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			script := strings.FieldsFunc(string(archive.Files[0].Data), func(r rune) bool { return r == '\n' })
			persistent := onBolt(t.TempDir())
			if diff := differences(t, script, map[string]makeInformer{"mem": onMem, "bolt": persistent, "wire": onWire(onBolt(t.TempDir()))}); diff != "" {
				t.Error(diff)
			}
			steps := play(t, script, persistent)
			golden(t, file, archive, story(steps[:len(steps)-1]))
		})
	}
}

// story describes the visible state of our informer for a reader: the notifications of
// handlers and, at the end, the store.
func story(steps []step) string {
	var out strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	synced := map[string]bool{}
	for _, st := range steps[:len(steps)-1] { // the last step is the same for all
		say("> %s", st.command)
		for _, call := range st.seen.Refused {
			say("%s: an error", call)
		}
		for _, name := range slices.Sorted(maps.Keys(st.seen.Told)) {
			for _, line := range repeated(inOrder(st, st.seen.Told[name])) {
				say("%s: %s", name, line)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(st.seen.Synced)) {
			if now := st.seen.Synced[name]; now != synced[name] && name != "its controller" {
				say("%s: synced: %v", name, now)
				synced[name] = now
			}
		}
	}
	last := steps[len(steps)-1].seen
	say("= store: %s", strings.Join(last.Store, " "))
	for _, name := range slices.Sorted(maps.Keys(last.Index)) {
		if keys := last.Index[name]; strings.Contains(name, "=") && len(keys) > 0 {
			say("= index %q: %s", name, strings.Join(keys, " "))
		}
	}
	return out.String()
}

// repeated merges consecutive equal lines into one with their number.
func repeated(lines []string) (out []string) {
	for len(lines) > 0 {
		n := 1
		for n < len(lines) && lines[n] == lines[0] {
			n++
		}
		text := lines[0]
		if n > 1 {
			text += fmt.Sprintf(" (%d times)", n)
		}
		out, lines = append(out, text), lines[n:]
	}
	return out
}
