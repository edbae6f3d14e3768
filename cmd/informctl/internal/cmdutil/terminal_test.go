package cmdutil_test

import (
	"io"
	"os"
	"testing"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/termtest"
)

// TestProgressNeedsRoom checks that there is no progress bar where it does not fit on a
// line: it would leave a line each time that it is drawn.
func TestProgressNeedsRoom(t *testing.T) {
	for width, want := range map[int]bool{20: false, 59: false, 60: true, 120: true} {
		if got := cmdutil.NewTerminal(termtest.Open(t, width, 10).TTY).Is; got != want {
			t.Errorf("%d columns: %t, want %t", width, got, want)
		}
	}
	for name, out := range map[string]io.Writer{"a writer": io.Discard, "a file": devNull(t)} {
		if cmdutil.NewTerminal(out).Is {
			t.Errorf("%s is a terminal", name)
		}
	}
}

func devNull(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}
