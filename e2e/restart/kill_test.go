package restart_test

import (
	"fmt"
	"math/rand"
	"testing"
	"time"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/store"
)

// TestKill is the main job (promises 1 to 4): informers of pods, configmaps and a
// CRD, typed and unstructured, on one file in one process, which is killed at
// random moments while objects change.
func TestKill(t *testing.T) {
	cycles := 20
	if testing.Short() {
		cycles = 3
	}
	w := newWorld(t, controlplane.Options{})
	for _, col := range collections {
		for i := range 30 {
			w.create(col, col.object(i, "default", fmt.Sprintf("still-%d", i)))
		}
	}
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewSource(seed))
	c := w.start()
	c.sync()
	c.atRest()
	for cycle := range cycles {
		stop := w.churn(rng.Int63())
		wait := time.NewTimer(time.Duration(rng.Intn(2500)) * time.Millisecond)
		<-wait.C
		c.Kill()
		for _, col := range collections {
			w.delete(col, "default", fmt.Sprintf("still-%d", cycle))
		}
		c = w.start()
		c.sync()
		stop()
		reports := c.atRest()
		for _, col := range collections {
			for _, form := range []store.Form{store.Typed, store.Unstructured} {
				r := reports[col.name(form)]
				key := fmt.Sprintf("default/still-%d", cycle)
				if last, told := r.Deleted[key]; !told || last.UID == "" {
					t.Errorf("cycle %d: %s: deletion of %s while the process was down was not told with its last state", cycle, col.name(form), key)
				}
			}
		}
		if lists := c.collectionLists(); len(lists) > 0 {
			t.Errorf("cycle %d: listed though the server has the history: %v", cycle, lists)
		}
	}
}
