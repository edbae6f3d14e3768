package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// runOptions are the options of run.
type runOptions struct {
	env
	database databaseFlag
	kube     *genericclioptions.ConfigFlags

	resources     []string
	allNamespaces bool
	labelSelector string
	fieldSelector string
	indexSpecs    []string
	once          bool
	logFormat     string

	metricsAddress string
	pprof          bool

	indexes []index.Index
}

func newRunCommand(e env) *cobra.Command {
	o := &runOptions{env: e, kube: newKubeFlags()}
	cmd := &cobra.Command{
		Use:   "run RESOURCE[,RESOURCE...]...",
		Short: "Keep a file up to date with a cluster until interrupted",
		Long: describe(`Keep a file up to date with a cluster until interrupted.

Resources are named as kubectl takes them. What an earlier run stored is resumed
where the server's history allows, and listed again by comparison where not.
An interrupt writes what waits and ends with 0. Secrets are stored with a key only.
Other processes of the user may ask it meanwhile, as informctl status does.`),
		Example: `  informctl run pods deployments.apps --db informers.db --index label:app
  informctl run pods -n default --once`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(cmd, args); err != nil {
				return err
			}
			return runRun(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	o.database.kube = o.kube
	o.database.add(o.env, cmd)
	o.kube.AddFlags(flags)
	flags.Lookup("namespace").Usage = "Only objects of this namespace; all namespaces by default."
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Objects of all namespaces, which is the default.")
	flags.StringVarP(&o.labelSelector, "selector", "l", "", "Only objects whose labels match, as kubectl has it.")
	flags.StringVar(&o.fieldSelector, "field-selector", "", "Only objects whose fields match, as kubectl has it.")
	flags.StringArrayVar(&o.indexSpecs, "index", nil, "Keep an index: label:KEY, field:PATH, owner or node; repeatable. There is always namespace.")
	flags.BoolVar(&o.once, "once", false, "Stop when caught up and written.")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", "", "Serve metrics for Prometheus at this address, as :8080; they are on the socket in any case.")
	flags.BoolVar(&o.pprof, "pprof", false, "Serve profiles on the socket, at /debug/pprof/.")
	flags.StringVar(&o.logFormat, "log-format", "text", "How to log to standard error, one of: text, json.")
	return cmd
}

// newKubeFlags returns kubectl's flags without those that have no use here: a timeout
// would end every watch, and discovery is not cached on disk.
func newKubeFlags() *genericclioptions.ConfigFlags {
	flags := genericclioptions.NewConfigFlags(true)
	flags.Timeout, flags.CacheDir = nil, nil
	return flags
}

// complete checks the command line before any request is made.
func (o *runOptions) complete(cmd *cobra.Command, args []string) error {
	for _, arg := range args {
		o.resources = append(o.resources, strings.Split(arg, ",")...)
	}
	for _, resource := range o.resources {
		if resource == "" || strings.Contains(resource, "/") {
			return usagef(cmd, "%q is no resource", resource)
		}
	}
	if len(o.resources) == 0 {
		return usagef(cmd, "no resource given")
	}
	if _, _, err := net.SplitHostPort(o.metricsAddress); err != nil && o.metricsAddress != "" {
		return usagef(cmd, "--metrics-bind-address %q is not HOST:PORT or :PORT", o.metricsAddress)
	}
	if o.logFormat != "text" && o.logFormat != "json" {
		return usagef(cmd, "unknown log format %q; there are text, json", o.logFormat)
	}
	if _, err := labels.Parse(o.labelSelector); err != nil {
		return usagef(cmd, "--selector %q: %w", o.labelSelector, err)
	}
	if _, err := fields.ParseSelector(o.fieldSelector); err != nil {
		return usagef(cmd, "--field-selector %q: %w", o.fieldSelector, err)
	}
	o.indexes = []index.Index{index.Namespace()}
	for _, spec := range o.indexSpecs {
		idx, err := index.Parse(spec)
		if err != nil {
			return usagef(cmd, "--index %s: %w", spec, err)
		}
		if !hasIndex(o.indexes, idx.Name) {
			o.indexes = append(o.indexes, idx)
		}
	}
	return nil
}

func hasIndex(indexes []index.Index, name string) bool {
	for _, idx := range indexes {
		if idx.Name == name {
			return true
		}
	}
	return false
}

// namespace returns the requested namespace; "" means all.
func (o *runOptions) namespace() string {
	if o.allNamespaces {
		return ""
	}
	return *o.kube.Namespace
}

// runRun blocks until the context ends or a signal arrives. With --once, it returns when
// all scopes are caught up and written.
func runRun(ctx context.Context, o *runOptions) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once

	out := newTerminal(o.streams.ErrOut)
	logger := newLogger(out, o.logFormat)
	klog.SetLogger(logr.Discard()) // client-go logs the errors that it returns
	ctx = klog.NewContext(ctx, logger)

	c, err := connect(ctx, o)
	if err != nil {
		return o.unlessInterrupted(ctx, err)
	}
	sources, refused := c.persistent(o)
	if len(sources) == 0 {
		return refused
	}
	if err := refuseSpecial(o.database.path); err != nil {
		return err
	}
	if err := o.database.makeDir(); err != nil {
		return err
	}
	db, err := bolt.Open(o.database.path, bolt.Options{Logger: logger, Keys: o.database.keys})
	if errors.Is(err, fs.ErrNotExist) {
		return inDirectory(o.database.path, err)
	}
	if err != nil {
		return openError(o.database.path, err)
	}
	err = o.followAll(ctx, db, out, logger, sources)
	if closeErr := db.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("close %s: %w", o.database.path, closeErr))
	}
	return errors.Join(err, refused)
}

// unlessInterrupted returns nil if the user ended a command that runs until it is
// interrupted.
func (o *runOptions) unlessInterrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if o.once {
		return errors.New("interrupted before it was caught up")
	}
	return nil
}

// followAll runs an informer for each source. A failure of one does not affect the
// others.
func (o *runOptions) followAll(ctx context.Context, db *bolt.DB, out *terminal, logger logr.Logger, sources []*source) error {
	held := map[string]bool{}
	infos, err := db.Scopes()
	if err != nil {
		return fmt.Errorf("read %s: %w", db.Path(), err)
	}
	for _, info := range infos {
		held[info.ID] = info.Complete
	}
	followers := make([]*follower, 0, len(sources))
	for _, src := range sources {
		f, err := o.newFollower(src, db)
		if err != nil {
			return err
		}
		f.warm = held[f.scope.ID()]
		followers = append(followers, f)
	}
	scraped, err := o.listenForMetrics(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var shown sync.WaitGroup
	if scraped != nil {
		shown.Go(func() { serveMetrics(ctx, scraped, logger, followers) })
	}
	shown.Go(func() { newProgress(out, logger, followers).run(ctx) })
	errs := make([]error, len(followers))
	var running sync.WaitGroup
	for i, f := range followers {
		running.Go(func() { errs[i] = f.run(ctx) })
	}
	if !o.once {
		shown.Go(func() { o.serve(ctx, db, logger, followers) })
	}
	running.Wait()
	cancel()
	shown.Wait()
	return errors.Join(append(errs, dropUnlisted(db, followers))...)
}

// dropUnlisted drops the scopes of which nothing was ever received, as those that the
// server refuses: readers would report each as incomplete from then on.
func dropUnlisted(db *bolt.DB, followers []*follower) error {
	infos, err := db.Scopes()
	if err != nil {
		return nil //nolint:nilerr // closing the file reports what is wrong with it
	}
	drop := map[string]bool{}
	for _, f := range followers {
		status := f.informer.Status()
		drop[f.scope.ID()] = !f.warm && status.Lists == 0 && status.Objects == 0
	}
	infos = slices.DeleteFunc(infos, func(i store.Info) bool { return !drop[i.ID] || i.Complete || i.Objects > 0 || i.Log.Entries > 0 })
	if len(infos) == 0 {
		return nil
	}
	_, err = db.Wipe(func(scope store.Scope) bool {
		return slices.ContainsFunc(infos, func(i store.Info) bool { return i.ID == scope.ID() })
	})
	return err
}

var errSecrets = errors.New("secrets are not stored without a key; give --key-file or --key-command")

// persistent returns the sources that may be stored, and an error if there are others.
func (c *cluster) persistent(o *runOptions) (sources []*source, refused error) {
	for _, src := range c.sources {
		if src.scope.IsSecret() && o.database.keys == nil {
			refused = errSecrets
			continue
		}
		sources = append(sources, src)
	}
	if refused != nil && len(sources) > 0 {
		o.note("%v; the other resources go on", refused)
	}
	return sources, refused
}
