package cmdutil

// Meter shows the progress of a command, on a terminal only.
type Meter struct {
	out   *Terminal
	total int
}

// NewMeter returns a meter that counts things up to total, 0 if that is not known. Stop
// removes it.
func (e Env) NewMeter(doing, things string, total int) *Meter {
	out := NewTerminal(e.Streams.ErrOut)
	out.doing, out.things = doing, things
	return &Meter{out: out, total: total}
}

// Set shows how many things are done.
func (m *Meter) Set(done int) {
	if m.out.Is {
		m.out.Set(done, m.total)
	}
}

// Stop removes the meter. Set shows it again.
func (m *Meter) Stop() { m.out.Clear() }

// BytesUnit is what a meter of bytes counts.
const BytesUnit = "bytes"
