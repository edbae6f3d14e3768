package cmdutil

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Terminal is standard error. If it is a terminal, it has a progress bar below the lines.
type Terminal struct {
	Is            bool   // it is a terminal with room for the bar
	doing, things string // labels of the bar
	every         time.Duration

	// mu protects the fields below.
	mu  sync.Mutex
	out io.Writer
	bar *progressbar.ProgressBar
}

// NewTerminal returns a Terminal that writes to out.
func NewTerminal(out io.Writer) *Terminal {
	return &Terminal{out: out, Is: hasRoom(out), doing: "listing", things: "objects", every: 50 * time.Millisecond}
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// barWidth is the number of columns that a bar takes with its texts. A line that wraps
// stays on the screen when the bar is drawn again.
const barWidth = 60

// hasRoom reports whether a stream is a terminal on which a bar does not wrap, or one
// that does not know its width.
func hasRoom(stream any) bool {
	if !isTerminal(stream) {
		return false
	}
	width, _, err := term.GetSize(int(stream.(*os.File).Fd())) //nolint:forcetypeassert // a terminal is a file
	return err != nil || width == 0 || width >= barWidth
}

// Write writes whole lines in place of the bar. The next Set shows the bar again.
func (t *Terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bar != nil {
		_ = t.bar.Clear()
	}
	return t.out.Write(p)
}

// Set shows the bar at a number of objects. A total of 0 means that it is not known.
func (t *Terminal) Set(objects, total int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bar == nil {
		if total == 0 {
			total = -1
		}
		t.bar = progressbar.NewOptions(total, t.options()...)
	}
	// Objects may be created during the list.
	if limit := t.bar.GetMax(); limit > 0 && objects >= limit {
		t.bar.ChangeMax(objects + 1)
	}
	_ = t.bar.Set(objects)
}

// Clear removes the bar.
func (t *Terminal) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bar != nil {
		_ = t.bar.Clear()
		t.bar = nil
	}
}

// options returns the options of the terminal's progress bar.
func (t *Terminal) options() []progressbar.Option {
	options := []progressbar.Option{
		progressbar.OptionSetWriter(t.out), progressbar.OptionSetDescription(t.doing),
		progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(t.every),
	}
	if t.things == BytesUnit {
		return append(options, progressbar.OptionShowBytes(true))
	}
	return append(options, progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString(t.things))
}
