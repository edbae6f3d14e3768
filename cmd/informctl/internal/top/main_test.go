package top_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain ignores Bubble Tea's reader, which does not always end after a panic.
func TestMain(m *testing.M) {
	const reader = "github.com/charmbracelet/ultraviolet.(*TerminalReader).StreamEvents"
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(reader), goleak.IgnoreAnyFunction(reader+".func1"))
}
