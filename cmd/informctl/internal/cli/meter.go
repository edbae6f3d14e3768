package cli

import "github.com/schollz/progressbar/v3"

// meter shows how far a command is, on a terminal only.
type meter struct {
	out   *terminal
	total int
}

// newMeter returns a meter of things up to total. stop takes it away.
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

// options are those of a terminal's bar.
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
