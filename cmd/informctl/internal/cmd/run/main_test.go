package run_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails a run that leaves goroutines behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
