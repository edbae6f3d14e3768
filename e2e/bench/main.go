package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// These environment variables turn a process into a server or a child.
const (
	serverRole = "INFORMCTL_BENCH_SERVER"
	childRole  = "INFORMCTL_BENCH_CHILD"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	done, err := play(ctx)
	if !done {
		err = bench(ctx, os.Args[1:], os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	rounds  int
	sizes   []int
	kinds   []string
	large   int // number of objects of a kind with large ones
	only    *regexp.Regexp
	out     string
	dir     string
	profile string
	seconds float64
	quiet   time.Duration
	// gogc is GOGC of the measured processes, not of the server; "" means Go's.
	gogc string
	// add keeps the results of an earlier run. report measures nothing. kube also
	// measures kubeSize pods, and as many config maps, on a kube-apiserver.
	add, report, kube bool
	kubeSize          int
}

func bench(ctx context.Context, args []string, progress io.Writer) error {
	o := options{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	sizes := "1000,10000,50000"
	if os.Getenv("BENCH_FULL") == "1" {
		sizes += ",150000"
	}
	flags.IntVar(&o.rounds, "rounds", 3, "how often each measurement is made")
	flags.StringVar(&sizes, "sizes", sizes, "numbers of objects")
	kinds := flags.String("kinds", strings.Join(kindNames(), ","), "kinds of objects; empty is none")
	flags.IntVar(&o.large, "large", 1000, "number of large objects")
	only := flags.String("only", "", "measure the rows whose name matches this regular expression")
	flags.StringVar(&o.out, "out", "docs", "directory to write benchmarks.md, benchmarks.json and the plots to")
	flags.StringVar(&o.dir, "dir", "", "directory of the database files; empty is a temporary one")
	flags.StringVar(&o.profile, "profile", "", "directory to write profiles to, which costs time itself")
	flags.Float64Var(&o.seconds, "seconds", 10, "how long changes at a rate go on")
	flags.DurationVar(&o.quiet, "quiet", 2500*time.Millisecond, "how long nothing happens until a process has settled")
	flags.StringVar(&o.gogc, "gogc", "", "GOGC of the processes that are measured, which the report does not say")
	flags.BoolVar(&o.add, "add", false, "keep the groups in benchmarks.json that this run does not measure")
	flags.BoolVar(&o.report, "report", false, "write the report from benchmarks.json and measure nothing")
	flags.BoolVar(&o.kube, "kube", false, "measure pods and config maps of a real kube-apiserver, too")
	flags.IntVar(&o.kubeSize, "kube-size", 20_000, "number of pods, and of config maps, for -kube")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *kinds != "" {
		o.kinds = strings.Split(*kinds, ",")
	}
	for field := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 100 {
			return fmt.Errorf("-sizes: %q is no number of 100 or more", field)
		}
		o.sizes = append(o.sizes, n)
	}
	if o.rounds < 1 {
		return fmt.Errorf("-rounds: %d is less than 1; -report writes the report without measuring", o.rounds)
	}
	if o.kubeSize < 100 {
		return fmt.Errorf("-kube-size: %d is less than 100", o.kubeSize)
	}
	if len(o.kinds) == 0 && !o.kube && !o.report {
		return errors.New("-kinds: empty without -kube, so there is nothing to measure")
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	return newRun(o, progress).all(ctx)
}

// play runs the role of this process if the command started it.
func play(ctx context.Context) (done bool, err error) {
	if text := os.Getenv(serverRole); text != "" {
		var ask serving
		if err := json.Unmarshal([]byte(text), &ask); err != nil {
			return true, err
		}
		return true, serve(ask)
	}
	text := os.Getenv(childRole)
	if text == "" {
		return false, nil
	}
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return true, err
	}
	f, err := measure(ctx, t)
	if err != nil {
		return true, err
	}
	return true, json.NewEncoder(os.Stdout).Encode(f)
}
