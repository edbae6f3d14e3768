// Package run is the command that keeps a file up to date with a cluster.
package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/cmd/informctl/internal/cluster"
	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/pgflags"
	"github.com/informctl/informctl/cmd/informctl/internal/probes"
	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/relay"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// options are the options of run.
type options struct {
	env      cmdutil.Env
	database source.FileFlags
	kube     *genericclioptions.ConfigFlags

	cluster.Choice
	allNamespaces bool
	labelSelector string
	fieldSelector string
	indexSpecs    []string
	once          bool
	log           cmdutil.LogFlags
	historyText   string

	metrics probes.Flags
	pprof   bool

	serves       bool // as a Kubernetes API
	servesSecret bool
	servePort    int

	follows  bool // a database
	postgres pgflags.Flags
	cluster  string // of the database

	indexes []index.Index
	history history
}

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	o := &options{env: e, kube: cluster.NewFlags()}
	cmd := &cobra.Command{
		Use:   "run [RESOURCE[,RESOURCE...]...]",
		Short: "Keep a file up to date with a cluster until interrupted",
		Long: cmdutil.Describe(`Keep a file up to date with a cluster until interrupted.

Resources are named as kubectl takes them. --all follows every resource that can be
listed and watched, in the server's preferred version; with -n, those that are in a
namespace. Custom resources come and go with their definitions. The server is asked
each minute for all others, which come and go with its version and aggregated APIs;
what two answers in a row lack is no longer followed. Of a resource that is gone the
log stays as long as history, which history and query --at read. What it leaves out it
says, and why. What is refused is tried again, and stops nothing else. The definitions of
custom resources are followed with these, where they may be listed: they have the
columns.

What an earlier run stored is resumed where the server's history allows, and listed
again by comparison where not.
A file that cannot be used, as one of another user or in a directory that cannot be
written, ends nothing: all is held in memory then, and the log and the status say why.
With --once or --serve it is an error.
With --serve, kubectl and programs read the file as if it were the cluster, also while the
server cannot be reached: at the loopback, with a kubeconfig beside the file, whose path
informctl kubeconfig prints.
With --postgres the file follows what informctl publish has published in a database, and
no server is asked.
An interrupt, SIGTERM or SIGHUP writes what waits and ends with 0. Secrets are stored with a key only.
Other processes of the user may ask it, as informctl status does, once it has reached
its server.`),
		Example: `  informctl run --all --exclude events,leases.coordination.k8s.io
  informctl run pods deployments.apps --db informers.db --index label:app
  informctl run pods -n default --once
  informctl run --all --serve
  informctl run --all --postgres --postgres-dsn-file /etc/informctl/dsn`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(cmd, args); err != nil {
				return err
			}
			return run(cmd, o)
		},
	}
	flags := cmd.Flags()
	o.database.Kube = o.kube
	o.database.Add(o.env, cmd)
	o.kube.AddFlags(flags)
	cmdutil.CompleteContext(cmd, o.kube)
	flags.Lookup("namespace").Usage = "Only objects of this namespace; all namespaces by default."
	o.Add(cmd, "Every resource that can be listed and watched.")
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Objects of all namespaces, which is the default.")
	flags.StringVarP(&o.labelSelector, "selector", "l", "", "Only objects whose labels match, as kubectl has it.")
	flags.StringVar(&o.fieldSelector, "field-selector", "", "Only objects whose fields match, as kubectl has it.")
	flags.StringArrayVar(&o.indexSpecs, "index", nil, "Keep an index: label:KEY, field:PATH, owner or node; repeatable. There is always namespace.")
	flags.StringVar(&o.historyText, "history", "", "Keep what has changed for AGE, and in BYTES of the file at most, as 24h or 7d,1GiB; off keeps nothing. RESOURCE=AGE or RESOURCE=off says it of one, as 24h,1GiB,nodes=1h. By default an hour, 32MiB of a resource and 256MiB of all, and without --serve nothing of leases and events.")
	cmdutil.RefuseEmpty(flags, "history", "write "+cmdutil.Retentions)
	flags.BoolVar(&o.once, "once", false, "Stop when caught up and written.")
	o.metrics.Add(flags, "; they are on the socket in any case")
	flags.BoolVar(&o.pprof, "pprof", false, "Serve profiles on the socket, at /debug/pprof/.")
	flags.BoolVar(&o.serves, "serve", false, "Serve the file as a read-only Kubernetes API at the loopback, with a kubeconfig beside it.")
	flags.IntVar(&o.servePort, "serve-port", 0, "The port of --serve; by default that of the last time, or any.")
	flags.BoolVar(&o.servesSecret, "serve-secrets", false, "Serve Secrets, too.")
	o.log.Add(cmd)
	flags.BoolVar(&o.follows, "postgres", false, "Follow what is published in PostgreSQL instead of a server.")
	o.postgres.Add(cmd)
	flags.StringVar(&o.cluster, "postgres-cluster", "", "With --postgres: the cluster, or how its identity begins, if several are published.")
	cmdutil.RefuseEmpty(flags, "postgres-cluster", "it names no cluster")
	o.addCompletion(cmd)
	return cmd
}

// complete checks the command line before any request is made.
func (o *options) complete(cmd *cobra.Command, args []string) error {
	if err := o.Parse(cmd, args); err != nil {
		return err
	}
	if err := o.Check(cmd, "follows"); err != nil {
		return err
	}
	// The file is that of a context.
	ofDatabase, ofServer := o.postgres.Given(cmd), cluster.GivenFlag(cmd, "kubeconfig", "context", "namespace")
	secrets := slices.IndexFunc(o.Resources, resources.IsSecrets)
	switch {
	case o.follows && secrets >= 0:
		return cmdutil.Usagef(cmd, "%s: Secrets are not published in PostgreSQL", o.Resources[secrets])
	case o.follows && (o.labelSelector != "" || o.fieldSelector != "" || len(o.Exclude) > 0):
		return cmdutil.Usagef(cmd, "--postgres follows whole resources: without --selector, --field-selector and --exclude")
	case o.follows && o.namespace() != "":
		return cmdutil.Usagef(cmd, "--postgres follows whole resources, not by namespace")
	case o.serves && o.once:
		return cmdutil.Usagef(cmd, "--serve and --once do not go together; informctl serve serves what --once has stored")
	case o.serves && (o.labelSelector != "" || o.fieldSelector != ""):
		return cmdutil.Usagef(cmd, "--serve serves whole resources: without --selector and --field-selector")
	case !o.serves && (o.servesSecret || o.servePort != 0):
		return cmdutil.Usagef(cmd, "--serve-port and --serve-secrets go with --serve only")
	case o.servePort < 0 || o.servePort > 65535:
		return cmdutil.Usagef(cmd, "--serve-port %d is no port", o.servePort)
	case !o.follows && o.cluster != "":
		return cmdutil.Usagef(cmd, "--postgres-cluster goes with --postgres only")
	case !o.follows && ofDatabase != "":
		return cmdutil.Usagef(cmd, "--%s goes with --postgres only", ofDatabase)
	case o.follows && ofServer != "":
		return cmdutil.Usagef(cmd, "--postgres asks no server: without --%s", ofServer)
	case o.once && o.pprof:
		return cmdutil.Usagef(cmd, "--pprof serves profiles on the socket, which --once does not have")
	}
	if err := o.metrics.Check(); err != nil {
		return cmdutil.Usagef(cmd, "%w", err)
	}
	if err := o.log.Check(cmd); err != nil {
		return err
	}
	if _, err := labels.Parse(o.labelSelector); err != nil {
		return cmdutil.Usagef(cmd, "--selector %q: %w", o.labelSelector, err)
	}
	if _, err := fields.ParseSelector(o.fieldSelector); err != nil {
		return cmdutil.Usagef(cmd, "--field-selector %q: %w", o.fieldSelector, err)
	}
	var err error
	if o.history, err = parseHistory(o.historyText); err != nil {
		return cmdutil.Usagef(cmd, "--history %w", err)
	}
	if off := o.history.off(); o.serves && off != "" {
		return cmdutil.Usagef(cmd, "--serve takes watches and lists from the history: not with --history %s", off)
	}
	o.indexes = []index.Index{index.Namespace()}
	for _, spec := range o.indexSpecs {
		idx, err := index.Parse(spec)
		if err != nil {
			return cmdutil.Usagef(cmd, "--index %s: %w", spec, err)
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
func (o *options) namespace() string {
	if o.allNamespaces {
		return ""
	}
	return *o.kube.Namespace
}

// run blocks until the context ends or a signal arrives. With --once, it returns when
// all scopes are caught up and written.
func run(cmd *cobra.Command, o *options) error {
	ctx, stop := cmdutil.Interruptible(cmd.Context())
	defer stop()

	out := cmdutil.NewTerminal(o.env.Streams.ErrOut)
	logger := o.log.Logger(out)
	klog.SetLogger(logr.Discard()) // client-go logs the errors that it returns
	ctx = klog.NewContext(ctx, logger)

	if err := cmp.Or(o.checkFile(), o.checkKeys(ctx)); err != nil {
		return err
	}
	of := &observed{}
	end, err := o.metrics.Begin(ctx, logger, answersOf(of))
	if err != nil {
		return err
	}
	defer end()
	var db *bolt.DB
	var documents *relay.Documents
	endServing := func() {} // before the file is closed
	if o.serves {           // also until the server is reached
		if db, err = o.open(logger); err != nil {
			return err
		}
		documents = relay.OpenDocuments(ctx, db)
		if endServing, err = o.beginServing(ctx, db, documents, logger, of); err != nil {
			return errors.Join(err, db.Close())
		}
	}
	c, closeDatabase, err := o.connect(ctx, cmd)
	if err != nil {
		endServing()
		return errors.Join(o.unlessInterrupted(ctx, err), closeFile(db))
	}
	defer closeDatabase()
	refused := c.refuseSecrets(o)
	if len(c.collections) == 0 {
		endServing()
		return errors.Join(cmp.Or(refused, errors.New("there is nothing to follow")), closeFile(db))
	}
	c.noteLeftOut(logger, nil)
	if ns := o.namespace(); ns != "" && c.isInNamespace() && c.LacksNamespace(ctx, ns) {
		o.env.Note("the server has no namespace %q", ns)
	}
	if db == nil {
		if db, err = o.open(logger); err != nil {
			return err
		}
		documents = relay.OpenDocuments(ctx, db)
	}
	documents.Of(ctx, c.identity)
	c.documents = documents
	err = o.followAll(ctx, db, out, logger, c, of)
	endServing()
	if closeErr := db.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("close %s: %w", o.database.Path, closeErr))
	}
	if !o.once { // it was said, and an interrupt is the regular end
		return err
	}
	return errors.Join(err, refused)
}

// checkFile returns an error for a file that would be followed into itself, and for what
// open refuses: a file that another process holds, or that is no cache. run would wait
// for its server first, and say it then.
func (o *options) checkFile() error {
	path := o.database.Path
	if !o.follows {
		if err := source.RefuseServed(o.kube, path, "would be followed into itself"); err != nil {
			return err
		}
	}
	if err := source.RefuseSpecial(path); err != nil {
		return err
	}
	if info, err := os.Lstat(path); o.serves || err != nil || !info.Mode().IsRegular() {
		return nil //nolint:nilerr // open makes the file, or does without one
	}
	db, err := bolt.OpenReadOnly(path, bolt.Options{Logger: logr.Discard()})
	switch {
	case err == nil:
		return db.Close()
	case isRefused(err):
		return source.OpenError(path, err)
	}
	return nil // open says what is wrong with it
}

// isRefused reports whether run ends because of a file that it could not open.
func isRefused(err error) bool {
	return errors.Is(err, store.ErrLocked) || errors.Is(err, store.ErrNotOurs)
}

// open opens the file. One that cannot be used is no error unless nothing would be left.
func (o *options) open(logger logr.Logger) (*bolt.DB, error) {
	if err := source.RefuseSpecial(o.database.Path); err != nil {
		return nil, err
	}
	opts := bolt.Options{Logger: logger, Keys: o.database.Keys, History: o.history.each, HistoryBytes: o.history.all}
	db, err := bolt.Open(o.database.Path, opts)
	if isRefused(err) {
		return nil, source.OpenError(o.database.Path, err)
	}
	if err != nil {
		err = source.OpenError(o.database.Path, err)
	} else if o.once && db.Suspended() != nil {
		err = errors.Join(db.Suspended(), db.Close())
	}
	switch {
	case err == nil:
		return db, nil
	case o.once: // nothing would be left of it
		return nil, fmt.Errorf("nothing can be stored: %w", err)
	}
	return bolt.WithoutFile(o.database.Path, err, opts), nil
}

// closeFile closes a file that may not be open.
func closeFile(db *bolt.DB) error {
	if db == nil {
		return nil
	}
	return db.Close()
}

// connect returns what is followed: a server, or a database, which the caller closes.
func (o *options) connect(ctx context.Context, cmd *cobra.Command) (c *connection, closeDatabase func(), err error) {
	if !o.follows {
		c, err = connect(ctx, o)
		return c, func() {}, err
	}
	o.postgres.Listening()
	open := o.postgres.Await
	if o.once {
		open = o.postgres.Open
	}
	db, err := open(ctx, cmd)
	if err != nil {
		return nil, nil, err
	}
	closeDatabase = func() { _ = db.Close() }
	if c, err = connectPublished(ctx, o, &published{db: db}); err != nil {
		closeDatabase()
	}
	return c, closeDatabase, err
}

// unlessInterrupted returns nil if the user ended a command that runs until it is
// interrupted.
func (o *options) unlessInterrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if o.once {
		return errors.New("interrupted before it was caught up")
	}
	return nil
}

// followAll runs an informer for each collection. A failure of one does not affect the
// others.
func (o *options) followAll(ctx context.Context, db *bolt.DB, out *cmdutil.Terminal, logger logr.Logger, c *connection, of *observed) error {
	fs, err := o.newFollowers(c, db, logger)
	if err != nil {
		return err
	}
	of.Store(fs)
	var custom *customResources
	if o.All && !o.follows {
		if custom, err = fs.customResources(); err != nil {
			return err
		}
	}
	if db.Suspended() == nil {
		logger.Info("Keeping", "file", db.Path(), "scopes", len(c.collections))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var shown sync.WaitGroup
	if !o.follows {
		shown.Go(func() { fs.noteServer(ctx, logger) })
		if o.keepsDocuments() {
			shown.Go(func() { fs.keepDocuments(ctx, logger) })
		}
	}
	shown.Go(func() {
		newProgress(out, logger, fs.list()).run(ctx)
		debug.FreeOSMemory() // what the first lists took is not needed again soon
	})
	for _, f := range fs.list() {
		fs.start(ctx, f)
	}
	switch {
	case o.once:
	case o.follows && o.All:
		fs.running.Go(func() { fs.followPublished(ctx) })
	case o.follows:
		fs.running.Go(func() { fs.followMissing(ctx) })
	case !o.All:
	default:
		fs.running.Go(func() { fs.followResources(ctx, custom) })
	}
	if !o.once {
		shown.Go(func() { o.serve(ctx, fs) })
	}
	err = fs.wait()
	cancel()
	shown.Wait()
	if custom != nil && o.once && cache.IsDone(custom.told) {
		there, gone := custom.present()
		// Without a second answer, the first one is not believed.
		if asked := fs.askAgain(context.WithoutCancel(ctx)); asked != nil {
			logger.Info("The server was not asked again for its resources, what it may have dropped stays", "because", asked.Error())
		}
		err = errors.Join(err, fs.dropGone(context.WithoutCancel(ctx), there, gone))
	}
	return errors.Join(err, fs.dropUnlisted())
}

var errSecrets = errors.New("secrets are not stored without a key; give --key-file or --key-command")

// refuseSecrets removes the collections that may not be stored. It returns an error if a
// user named one.
func (c *connection) refuseSecrets(o *options) error {
	if o.database.Keys != nil {
		return nil
	}
	before := len(c.collections)
	c.collections = slices.DeleteFunc(c.collections, func(collection *cluster.Collection) bool { return collection.Scope.IsSecret() })
	switch {
	case len(c.collections) == before:
		return nil
	case o.All:
		c.everything.Left = append(c.everything.Left, cluster.LeftOut{Resource: "secrets", Because: errSecrets.Error()})
		return nil
	case len(c.collections) > 0:
		o.env.Note("%v; the other resources go on", errSecrets)
	}
	return errSecrets
}

// checkKeys returns an error if Secrets are named, and the file of their keys cannot be
// read, which no waiting mends. The informer of Secrets tries a command again.
func (o *options) checkKeys(ctx context.Context) error {
	if !o.database.KeysOfFile || !slices.ContainsFunc(o.Resources, resources.IsSecrets) {
		return nil
	}
	if _, err := o.database.Keys.Keys(ctx); err != nil {
		return fmt.Errorf("secrets are not stored: %w", err)
	}
	return nil
}

// isInNamespace reports whether something that is followed is in the namespace of -n.
func (c *connection) isInNamespace() bool {
	return slices.ContainsFunc(c.collections, func(collection *cluster.Collection) bool { return collection.Scope.Namespace != "" })
}

// noteLeftOut says what --all does not follow, unless it was said before.
func (c *connection) noteLeftOut(logger logr.Logger, said []cluster.LeftOut) {
	if c.everything == nil {
		return
	}
	for _, left := range c.everything.Left {
		if slices.ContainsFunc(said, func(l cluster.LeftOut) bool { return l.Resource == left.Resource }) {
			continue
		}
		logger.Info("Left out", "resource", left.Resource, "because", left.Because)
	}
}
