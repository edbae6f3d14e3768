package storetest_test

import (
	"testing"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/mem"
	"github.com/informctl/informctl/store/storetest"
)

// TestRun checks that the simplest backend passes the suite.
func TestRun(t *testing.T) {
	storetest.Run(t, storetest.Config{Open: func(*testing.T, string) store.Backend { return mem.New() }})
}
