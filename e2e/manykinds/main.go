package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// role is the environment variable that makes a process a server or a child.
const role = "INFORMCTL_MANYKINDS"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "manykinds:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if text := os.Getenv(role); text != "" {
		var t task
		if err := json.Unmarshal([]byte(text), &t); err != nil {
			return err
		}
		if t.URL == "" {
			return serve(t.Kinds)
		}
		return t.measure(ctx)
	}
	kinds := flag.Int("kinds", 300, "number of kinds; kind i has i%100+1 objects")
	rounds := flag.Int("rounds", 3, "how often each measurement is made")
	flag.Parse()
	if *kinds < 1 || *rounds < 1 || flag.NArg() > 0 {
		return fmt.Errorf("want -kinds and -rounds of 1 or more, and no argument")
	}
	return measureAll(ctx, *kinds, *rounds, 3*time.Second, os.Stdout, os.Stderr)
}

// task is what a child does: serve, if it has no URL, or measure.
type task struct {
	Kinds int
	URL   string
	QPS   float32
	File  string // of persistent informers; "" means client-go's
	// Quiet is how long the process is left alone before its memory is measured.
	Quiet time.Duration
}

// figures are what a child has measured.
type figures struct {
	Synced     float64 // seconds until all caches have synced
	CPU        float64 // seconds, until then
	RSS        int64   // bytes of anonymous memory, settled
	Goroutines int
	Requests   int64 // until it has settled
	Lines      int   // of the log, until then
}

// side is a row of the table.
type side struct {
	name string
	warm bool
	ours bool
}

var sides = []side{{name: "client-go"}, {name: "informctl, cold", ours: true}, {name: "informctl, warm", ours: true, warm: true}}

// measureAll prints the table of all sides, with and without a limit of requests.
func measureAll(ctx context.Context, kinds, rounds int, quiet time.Duration, out, progress io.Writer) error {
	dir, err := os.MkdirTemp("", "informctl-manykinds-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	url, stop, err := startServer(ctx, kinds)
	if err != nil {
		return err
	}
	defer stop()
	if _, err := fmt.Fprintf(out, "| %d kinds | QPS | synced | CPU | anonymous RSS | goroutines | requests | log lines |\n|---|--:|--:|--:|--:|--:|--:|--:|\n", kinds); err != nil {
		return err
	}
	for _, qps := range []float32{-1, 5} {
		all := make([][]figures, len(sides))
		for range rounds {
			file := filepath.Join(dir, "informers.db")
			if err := os.RemoveAll(file); err != nil {
				return err
			}
			for i, s := range sides {
				t := task{Kinds: kinds, URL: url, QPS: qps, Quiet: quiet}
				if s.ours {
					t.File = file
				}
				f, err := child(ctx, t)
				if err != nil {
					return fmt.Errorf("%s, QPS %g: %w", s.name, qps, err)
				}
				all[i] = append(all[i], f)
				_, _ = fmt.Fprintf(progress, "%s, QPS %g: %+v\n", s.name, qps, f)
			}
		}
		for i, s := range sides {
			m := median(all[i])
			if _, err := fmt.Fprintf(out, "| %s | %g | %.2f s | %.2f s | %.0f MB | %d | %d | %d |\n",
				s.name, qps, m.Synced, m.CPU, float64(m.RSS)/1e6, m.Goroutines, m.Requests, m.Lines); err != nil {
				return err
			}
		}
	}
	return nil
}

// median returns the median of each figure.
func median(all []figures) (m figures) {
	middle := func(of func(figures) float64) float64 {
		values := make([]float64, len(all))
		for i, f := range all {
			values[i] = of(f)
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	m.Synced = middle(func(f figures) float64 { return f.Synced })
	m.CPU = middle(func(f figures) float64 { return f.CPU })
	m.RSS = int64(middle(func(f figures) float64 { return float64(f.RSS) }))
	m.Goroutines = int(middle(func(f figures) float64 { return float64(f.Goroutines) }))
	m.Requests = int64(middle(func(f figures) float64 { return float64(f.Requests) }))
	m.Lines = int(middle(func(f figures) float64 { return float64(f.Lines) }))
	return m
}

// child measures in a process of its own.
func child(ctx context.Context, t task) (f figures, err error) {
	cmd, err := again(ctx, t)
	if err != nil {
		return f, err
	}
	var log bytes.Buffer
	cmd.Stderr = &log
	text, err := cmd.Output()
	if err != nil {
		return f, fmt.Errorf("%w\n%s", err, log.Bytes()[max(0, log.Len()-2000):])
	}
	err = json.Unmarshal(text, &f)
	f.Lines = bytes.Count(log.Bytes(), []byte{'\n'})
	return f, err
}

// startServer returns the address of a server that runs until stop.
func startServer(ctx context.Context, kinds int) (url string, stop func(), err error) {
	cmd, err := again(ctx, task{Kinds: kinds})
	if err != nil {
		return "", nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = in.Close() // the server ends with its input
		_ = cmd.Wait()
	}
	line := make([]byte, 100)
	n, err := out.Read(line)
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("the server has no address: %w", err)
	}
	return strings.TrimSpace(string(line[:n])), stop, nil
}

// again returns a command that runs this program in another role.
func again(ctx context.Context, t task) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(t)
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), role+"="+string(text))
	cmd.WaitDelay = time.Minute
	return cmd, err
}
