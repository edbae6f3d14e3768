package manager_test

import (
	"context"
	"flag"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/internal/testobjects"
)

var objectsFlag = flag.Int("objects", 500, "how many widgets TestDurableWidgets creates")

// TestDurableWidgets checks the controller of a custom resource whose process ends
// between changes, with Skip and with Trickle, and which is killed amid its work.
func TestDurableWidgets(t *testing.T) {
	w := theWorld(t)
	w.defineWidgets(t)
	begun := time.Now()
	f := w.family(t, "widgets", *objectsFlag, func(i int) client.Object {
		widget := testobjects.NewTypedWidget(i, 1)
		testobjects.ClearServerFields(widget)
		return widget
	})
	t.Logf("%d widgets and %d pods created in %v", len(f.parents), len(f.children), time.Since(begun))
	begun = time.Now()
	task := widgets{
		File: filepath.Join(t.TempDir(), "informers.db"), Kubeconfig: w.Kubeconfig(), Namespace: "widgets", Unchanged: durable.Skip,
	}
	c := task.start(t)
	c.want("the first start", f.names...)
	c.report("first start", begun)
	c.stop()

	left := f.change(20, 5, 3, 2)
	begun = time.Now()
	c = task.start(t)
	c.want("after the changes, with Skip", left...)
	c.report("changes, Skip", begun)
	c.stop()

	left = f.change(20, 5, 3, 2)
	trickle := task
	trickle.Unchanged, trickle.Every = durable.Trickle, 10*time.Second+time.Duration(*objectsFlag)*5*time.Millisecond
	// Many others may not overtake a worker that has a key and no CPU.
	trickle.Work = 20 * time.Millisecond
	begun = time.Now()
	c = trickle.start(t)
	c.await("every widget, with Trickle", func(done []work) bool { return len(byName(done)) == len(f.names) })
	// Some that trickle may begin before: workers still have some of the others, and some
	// changes are heard of only when the pods are listed, too.
	some := len(left) + len(f.names)/10
	begins := slices.SortedFunc(slices.Values(c.works()), func(a, b work) int { return a.Begun.Compare(b.Begun) })
	first := byName(begins[:some])
	for _, name := range left {
		if first[name].Name == "" {
			t.Errorf("%s is not among the first %d that were reconciled, with Trickle", name, some)
		}
	}
	c.report("changes, Trickle", begun)
	c.stop()
	checkKilledWidgets(t, task, f)
}

// checkKilledWidgets kills the controller in the middle of its work on widgets that were
// edited, while others are delayed and have failed.
func checkKilledWidgets(t *testing.T, task widgets, f *family) {
	t.Helper()
	const delay = 45 * time.Second // the process is back by then
	later, failing, more := f.take(min(500, *objectsFlag/4)), f.take(20), f.take(min(1000, *objectsFlag/2))
	task.Work, task.Later, task.Fails = 5*time.Millisecond, delay, true
	c := task.start(t)
	f.edit("later", later...)
	f.edit("failing", failing...)
	c.await("the failures", func(done []work) bool {
		last := byName(done)
		return !slices.ContainsFunc(failing, func(name string) bool { return last[name].Failures < 3 }) &&
			!slices.ContainsFunc(later, func(name string) bool { return last[name].Edited != "later" })
	})
	committed, at := byName(c.works()), time.Now()
	// The kill loses what is not committed, and a commit may wait for the disk.
	c.await("a commit", func([]work) bool { return time.Since(at) > 10*time.Second })
	var editing sync.WaitGroup
	editing.Go(func() { f.edit("more", more...) })
	finished := func(last map[string]work) (n int) {
		for _, name := range more {
			if last[name].Edited == "more" {
				n++
			}
		}
		return n
	}
	c.await("half of the work", func(done []work) bool {
		return finished(byName(done)) >= len(more)/2
	})
	c.kill()
	editing.Wait()
	before := byName(c.works())
	t.Logf("killed: %d delayed, %d failed, %d of %d done", len(later), len(failing), finished(before), len(more))

	task.Later, task.Fails = 0, false
	begun := time.Now()
	c = task.start(t)
	c.await("what was left", func(done []work) bool {
		after := byName(done)
		return !slices.ContainsFunc(slices.Concat(later, failing), func(name string) bool { return after[name].Name == "" }) &&
			!slices.ContainsFunc(more, func(name string) bool { return before[name].Edited != "more" && after[name].Edited != "more" })
	})
	after := byName(c.works())
	for name := range after {
		if !slices.Contains(slices.Concat(later, failing, more), name) {
			t.Errorf("%s was reconciled after the kill, and it was finished before", name)
		}
	}
	// What was due before the process was back is late from its first work.
	works := c.works()
	back := slices.MinFunc(works, func(a, b work) int { return a.At.Compare(b.At) }).At
	seen := map[string]bool{}
	for _, w := range works {
		if seen[w.Name] {
			continue // the first one counts
		}
		seen[w.Name] = true
		switch before := before[w.Name]; {
		case slices.Contains(failing, w.Name) && w.Failures < committed[w.Name].Failures:
			t.Errorf("%s has %d failures after the kill, it had %d before", w.Name, w.Failures, committed[w.Name].Failures)
		case slices.Contains(later, w.Name):
			late := w.At.Sub(before.At) - delay
			if due := w.At.Add(-late); due.Before(back) {
				late = w.At.Sub(back)
			}
			if late < 0 || late > 10*time.Second {
				t.Errorf("%s was reconciled %v after its time", w.Name, late)
			}
		}
	}
	c.report("kill", begun)
	c.stop()
}

// reconcilers is how many widgets a controller works on at once.
const reconcilers = 4

// byName returns the last work of each name.
func byName(done []work) map[string]work {
	last := map[string]work{}
	for _, w := range done {
		last[w.Name] = w
	}
	return last
}

// report logs what the controller has done since its start.
func (c *widgetController) report(what string, begun time.Time) {
	done := c.works()
	if len(done) == 0 {
		return
	}
	c.Logf("%s: %d reconciles of %d widgets, the first after %v and the last after %v", what, len(done), len(byName(done)),
		done[0].At.Sub(begun).Round(time.Millisecond), done[len(done)-1].At.Sub(begun).Round(time.Millisecond))
}

// defineWidgets blocks until the server serves widgets, until the end of the test.
func (w *world) defineWidgets(t *testing.T) {
	t.Helper()
	crd := testobjects.WidgetCRD()
	w.create(t, crd)
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		return w.direct.List(ctx, &testobjects.TypedWidgetList{}, client.Limit(1)) == nil, nil
	})
	if err != nil {
		t.Fatal("the server does not serve widgets: ", err)
	}
}
