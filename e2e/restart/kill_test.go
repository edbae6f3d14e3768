package restart_test

import (
	"fmt"
	"math/rand"
	"testing"
	"time"

	"github.com/informctl/informctl/e2e/controlplane"
)

// TestKill checks promises 1 to 4: a process runs typed and unstructured informers of
// pods, configmaps and a CRD on one file and is killed at random moments while objects
// change. Handlers must also receive the deletions that happened while no process ran:
// atRest reports an object that a handler still holds.
func TestKill(t *testing.T) {
	t.Parallel()
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
	c.stop() // otherwise the first list might not be written yet
	c = w.start()
	c.sync()
	for cycle := range cycles {
		stop := w.churn(rng.Int63())
		wait := time.NewTimer(time.Duration(rng.Intn(2500)) * time.Millisecond)
		<-wait.C
		c.kill()
		for _, col := range collections {
			w.delete(col, "default", fmt.Sprintf("still-%d", cycle))
		}
		c = w.start()
		c.sync()
		stop()
		c.atRest()
		if lists := c.collectionLists(); len(lists) > 0 {
			t.Errorf("cycle %d: listed though the server has the history: %v", cycle, lists)
		}
	}
}
