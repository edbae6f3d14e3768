package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/e2e/program"
)

const (
	// widgets is the number of custom resources.
	widgets = 200
	// commitTime is longer than the time after which informctl commits a change.
	commitTime = 5 * time.Second
	// catchUpTimeout is the time after which a start has failed.
	catchUpTimeout = 2 * time.Minute
	// headLines is the number of lines that are shown of a long output, and historyLines
	// that of changes.
	headLines, historyLines = 6, 3
)

// file is the name of informctl's file in the directory of the demo. All commands run in
// that directory.
const file = "informers.db"

var errInterrupted = errors.New("interrupted")

// options configure a demo.
type options struct {
	// Pods is the number of pods at the beginning, at least leastPods.
	Pods int
}

// demo is the state that the steps share.
type demo struct {
	opts      options
	out       *output
	dir       string
	cp        *controlplane.ControlPlane
	meter     *meter
	informctl *informctl

	cold, warm figures
	listed     []string  // what the warm start has listed, and why
	process    *follower // of the cold start, until it is killed
	served     *served   // the file, at the end
	kubectl    string    // path of the program
	before     versions  // of the file after informctl was killed
	seen       difference
	equal      map[string]int // equal objects in file and server, by resource
}

// step is one line of the output.
type step struct {
	what string
	do   func(context.Context) (result string, err error)
}

// run plays the demo. It blocks until everything is shown and stopped. If ctx ends early,
// it returns errInterrupted.
func run(ctx context.Context, stdout io.Writer, opts options) error {
	return runDemo(ctx, stdout, opts, func(d *demo) error { return d.restarts(ctx) })
}

// runDemo has a demo played, and stops it.
func runDemo(ctx context.Context, stdout io.Writer, opts options, play func(*demo) error) (err error) {
	if opts.Pods < leastPods {
		return fmt.Errorf("%d pods are too few, the least are %d", opts.Pods, leastPods)
	}
	dir, err := os.MkdirTemp("", "informctl-demo-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	d := &demo{opts: opts, out: &output{w: stdout}, dir: dir}
	defer func() {
		// An interrupt causes other errors, so errInterrupted replaces them.
		if ctx.Err() != nil {
			err = errInterrupted
		}
		err = errors.Join(err, d.stop())
	}()
	return play(d)
}

// restarts shows a cold and a warm start, and what kubectl reads of the file.
func (d *demo) restarts(ctx context.Context) error {
	intro := "One command, started twice: COLD with no file, and WARM after it was killed and\n" +
		"objects have changed.\n\n"
	if err := errors.Join(d.out.print(intro), d.play(ctx, d.twoStarts())); err != nil {
		return err
	}
	if err := d.out.table(d.figures()); err != nil {
		return err
	}
	if err := d.show(ctx, headLines, "objects", "dump", "--db", file); err != nil {
		return err
	}
	if err := d.show(ctx, headLines, "objects", "query", "pods", "--index", "namespace=default", "--db", file); err != nil {
		return err
	}
	if err := d.show(ctx, historyLines+1, "changes", "history", "pods", "--deleted", "--since", "1h", "--db", file); err != nil {
		return err
	}
	if err := d.play(ctx, []step{{"Compare each object in the file with the server's", d.compare}}); err != nil {
		return err
	}
	err := d.out.print(fmt.Sprintf("\nThe file equals the server: %d pods and %d widgets, each with the same UID, resource version and JSON.\n",
		d.equal["pods"], d.equal["widgets"]))
	if err := errors.Join(err, d.wasWarm()); err != nil {
		return err
	}
	return d.withoutServer(ctx)
}

// withoutServer shows what kubectl reads of the file when there is no server.
func (d *demo) withoutServer(ctx context.Context) error {
	if err := errors.Join(d.out.print("\n"), d.play(ctx, []step{
		{"Stop the API server", d.stopServer},
		{"Build kubectl", d.buildKubectl},
		{"informctl serve --db " + file, d.serve},
	})); err != nil {
		return err
	}
	if err := d.out.print("\n"); err != nil {
		return err
	}
	for _, args := range [][]string{{"get", "pods", "--all-namespaces"}, {"get", "widgets", "--all-namespaces"}} {
		if err := d.showKubectl(ctx, headLines, args...); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) twoStarts() []step {
	return []step{
		{"Start etcd and kube-apiserver", d.startControlPlane},
		{fmt.Sprintf("Create %d pods and %d widgets", d.opts.Pods, widgets), d.load},
		{"Build informctl", d.build},
		{"Cold: informctl run pods widgets --db " + file, d.startCold},
		{"Let it write, kill it with SIGKILL", d.kill},
		{fmt.Sprintf("Create %d, change %d and delete %d pods", created, changed, deleted), d.change},
		{"Warm: the same command with --once", d.startWarm},
		{"Find what changed in the file, read the audit log", d.evaluate},
	}
}

// stop ends all processes and removes the directory.
func (d *demo) stop() error {
	var errs []error
	if d.process != nil {
		d.process.kill()
	}
	if d.served != nil {
		errs = append(errs, d.served.stop())
	}
	if d.meter != nil {
		d.meter.close()
	}
	if d.cp != nil {
		errs = append(errs, d.cp.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(d.dir))...)
}

func (d *demo) play(ctx context.Context, steps []step) error {
	for _, s := range steps {
		if err := d.out.step(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) startControlPlane(ctx context.Context) (_ string, err error) {
	if d.cp, err = controlplane.Start(ctx, controlplane.Options{Dir: filepath.Join(d.dir, "controlplane")}); err != nil {
		return "", err
	}
	server, err := url.Parse(d.cp.Config().Host)
	if err != nil {
		return "", fmt.Errorf("address of the server: %w", err)
	}
	if d.meter, err = newMeter(server.Host); err != nil {
		return "", err
	}
	return "Kubernetes " + d.cp.Version(), nil
}

func (d *demo) load(ctx context.Context) (string, error) {
	return "", controlplane.Load(ctx, d.cp.Config(), controlplane.LoadOptions{Pods: d.opts.Pods, Widgets: widgets, Seed: seed})
}

func (d *demo) build(ctx context.Context) (_ string, err error) {
	kubeconfig := filepath.Join(d.dir, "kubeconfig")
	if err := d.meter.writeKubeconfig(d.cp.Kubeconfig(), kubeconfig); err != nil {
		return "", err
	}
	path, err := program.Release(ctx, d.dir)
	d.informctl = &informctl{path: path, dir: d.dir, kubeconfig: kubeconfig}
	return "", err
}

func (d *demo) startCold(ctx context.Context) (_ string, err error) {
	d.cold.begin = time.Now()
	if d.process, err = d.informctl.follow(ctx); err != nil {
		return "", err
	}
	d.cold.caughtUp, err = d.process.awaitCaughtUp(catchUpTimeout)
	return "caught up", err
}

// kill kills informctl, as a power cut would.
func (d *demo) kill(ctx context.Context) (_ string, err error) {
	select {
	case <-time.After(commitTime):
	case <-ctx.Done():
		return "", ctx.Err()
	}
	d.process.kill()
	d.process = nil
	d.cold.bytes = d.meter.take()
	d.before, err = d.informctl.versions(ctx)
	d.cold.objects = len(d.before)
	return fmt.Sprintf("%d objects in the file", len(d.before)), err
}

func (d *demo) change(ctx context.Context) (string, error) {
	return "", changePods(ctx, d.cp.Config(), d.opts.Pods)
}

func (d *demo) startWarm(ctx context.Context) (_ string, err error) {
	d.warm.begin = time.Now()
	f, err := d.informctl.follow(ctx, "--once")
	if err != nil {
		return "", err
	}
	defer f.kill()
	if d.warm.caughtUp, err = f.awaitCaughtUp(catchUpTimeout); err != nil {
		return "", err
	}
	if err := f.wait(); err != nil {
		return "", err
	}
	d.warm.bytes = d.meter.take()
	if d.listed = f.listed; len(d.listed) > 0 {
		return "caught up and ended, but listed " + strings.Join(d.listed, ", "), nil
	}
	return "caught up and ended", nil
}

// wasWarm returns an error if the warm start has read whole collections. A server that
// has dropped its history meanwhile, as on a slow machine, leaves no other way.
func (d *demo) wasWarm() error {
	if d.warm.collections == 0 && len(d.listed) == 0 {
		return nil
	}
	what := "whole collections"
	if len(d.listed) > 0 {
		what = strings.Join(d.listed, ", ")
	}
	return fmt.Errorf("the start that was to be warm has listed %s: the server no longer had its history, as happens on a slow machine; try it again, or fewer -pods", what)
}

// evaluate computes the remaining figures.
func (d *demo) evaluate(ctx context.Context) (string, error) {
	after, err := d.informctl.versions(ctx)
	if err != nil {
		return "", err
	}
	d.warm.objects = len(after)
	d.seen = d.before.difference(after)
	if want := (difference{created, changed, deleted}); d.seen != want {
		return "", fmt.Errorf("the file has %v, not %v", d.seen, want)
	}
	requests, err := d.cp.Requests(d.cold.begin)
	if err != nil {
		return "", err
	}
	for _, r := range requests {
		switch {
		case !strings.HasPrefix(r.UserAgent, "informctl/"):
		case r.Received.Before(d.warm.begin):
			d.cold.count(r)
		default:
			d.warm.count(r)
		}
	}
	return "", nil
}

// show runs a command as a user would and prints the first lines of its output.
func (d *demo) show(ctx context.Context, head int, what string, args ...string) error {
	begin := time.Now()
	lines, err := d.informctl.lines(ctx, args...)
	if err != nil {
		return err
	}
	took := time.Since(begin)
	text := fmt.Sprintf("$ informctl %s | head -%d\n", strings.Join(args, " "), head)
	for _, line := range lines[:min(head, len(lines))] {
		text += line + "\n"
	}
	rows := len(lines) - 1 // the first line is a header
	for _, line := range lines {
		if line == "" {
			rows -= 2 // and so is the one after an empty line
		}
	}
	return d.out.print(text + fmt.Sprintf("... %d %s in %s\n\n", max(0, rows), what, seconds(took)))
}
