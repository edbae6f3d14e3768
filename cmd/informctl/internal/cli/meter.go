package cli

import "github.com/schollz/progressbar/v3"

// meter shows the progress of a command, on a terminal only.
type meter struct {
	out   *terminal
	total int
}

// newMeter returns a meter that counts things up to total. stop removes it.
func (e env) newMeter(doing, things string, total int) *meter {
	out := newTerminal(e.streams.ErrOut)
	out.doing, out.things = doing, things
	return &meter{out: out, total: total}
}

func (m *meter) set(done int) {
	if m.out.is {
		m.out.set(done, m.total)
	}
}

func (m *meter) stop() { m.out.clear() }

// options returns the options of the terminal's progress bar.
func (t *terminal) options() []progressbar.Option {
	options := []progressbar.Option{
		progressbar.OptionSetWriter(t.out), progressbar.OptionSetDescription(t.doing),
		progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(t.every),
	}
	if t.things == bytesUnit {
		return append(options, progressbar.OptionShowBytes(true))
	}
	return append(options, progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString(t.things))
}

const bytesUnit = "bytes"
