package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/informctl/informctl/e2e/controlplane"
)

// output prints to the user.
type output struct{ w io.Writer }

func (o *output) print(text string) error {
	if _, err := io.WriteString(o.w, text); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// step runs a step and prints its line: first its description, and at the end its
// duration and result.
func (o *output) step(ctx context.Context, s step) error {
	if err := o.print(fmt.Sprintf("%-52s", s.what)); err != nil {
		return err
	}
	begin := time.Now()
	result, err := s.do(ctx)
	if err != nil {
		_ = o.print("\n") // the error has its own line
		return err
	}
	return o.print(strings.TrimRight(fmt.Sprintf("%7s  %s", seconds(time.Since(begin)), result), " ") + "\n")
}

// table prints rows of cells.
func (o *output) table(rows [][]string) error {
	var text strings.Builder
	text.WriteString("\n")
	// A tabwriter that writes to memory never returns an error.
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush()
	return o.print(text.String() + "\n")
}

// figures are the measurements of one start.
type figures struct {
	begin    time.Time
	caughtUp time.Duration
	bytes    int64
	objects  int

	requests    int
	collections int // lists and watches whose answer contains every object
}

func (f *figures) count(r controlplane.Request) {
	f.requests++
	if r.IsList() {
		f.collections++
	}
}

// figures returns the rows of the table.
func (d *demo) figures() [][]string {
	row := func(name string, value func(figures) string) []string {
		return []string{name, value(d.cold), value(d.warm)}
	}
	number := func(value func(figures) int) func(figures) string {
		return func(f figures) string { return fmt.Sprint(value(f)) }
	}
	return [][]string{
		{"", "COLD", "WARM"},
		row("time to caught up", func(f figures) string { return seconds(f.caughtUp) }),
		row("whole collections received", number(func(f figures) int { return f.collections })),
		row("requests to the server", number(func(f figures) int { return f.requests })),
		row("bytes from the server", func(f figures) string { return megabytes(f.bytes) }),
		row("objects in the file", number(func(f figures) int { return f.objects })),
		{"created meanwhile", "-", fmt.Sprint(d.seen.created)},
		{"changed meanwhile", "-", fmt.Sprint(d.seen.changed)},
		{"deleted meanwhile", "-", fmt.Sprint(d.seen.deleted)},
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2fs", d.Seconds()) }

func megabytes(n int64) string { return fmt.Sprintf("%.2f MB", float64(n)/1e6) }
