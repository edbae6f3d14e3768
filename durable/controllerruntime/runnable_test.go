package controllerruntime_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/durable/controllerruntime"
	"github.com/informctl/informctl/store/bolt"
)

type stubManager struct{ manager.Manager }

func (stubManager) Add(manager.Runnable) error { return nil }

// everywhere is a runnable that is no controller, like a webhook server or a metrics
// pusher.
type everywhere struct{}

func (everywhere) Start(context.Context) error { return nil }
func (everywhere) NeedLeaderElection() bool    { return false }

// TestAddOfNoController checks that a runnable which needs no election, and is no
// controller, does not make a consumer active.
func TestAddOfNoController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := durable.Open(db, "a", durable.Options{Elected: make(chan struct{})})
		if err != nil {
			t.Fatal(err)
		}
		if err := controllerruntime.Manager(c, stubManager{}).Add(everywhere{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := c.Status(); s.State != durable.Standby {
			t.Errorf("a standby is %s before it is elected", s.State)
		}
		_ = c.Close()
		_ = db.Close()
	})
}
