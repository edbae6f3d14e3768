// Package controlplanetest starts control planes for tests.
package controlplanetest

import (
	"testing"

	"github.com/informctl/informctl/e2e/controlplane"
)

// Start starts a control plane in a new directory and stops it when the test ends.
func Start(t testing.TB, opts controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	opts.Dir = t.TempDir()
	cp, err := controlplane.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cp
}
