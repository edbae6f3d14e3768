// Package publish is the command that publishes what an API server has to PostgreSQL.
package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/cmd/informctl/internal/cluster"
	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/pgflags"
	"github.com/informctl/informctl/cmd/informctl/internal/probes"
	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/postgres"
	"github.com/informctl/informctl/store"
)

// options are the options of publish.
type options struct {
	cluster.Choice

	env      cmdutil.Env
	kube     *genericclioptions.ConfigFlags
	postgres pgflags.Flags
	sql      bool
	history  string
	group    string
	log      cmdutil.LogFlags
	metrics  probes.Flags

	keepAge   time.Duration
	keepBytes int64
	served    *cluster.Everything // of --all: the last answer of the server
	excluded  sets.Set[string]    // of --all; nil before the server has been asked
}

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	o := &options{env: e, kube: cluster.NewFlags(), Choice: cluster.Choice{Frequent: true}}
	cmd := &cobra.Command{
		Use:   "publish [RESOURCE[,RESOURCE...]...]",
		Short: "Publish what an API server has to PostgreSQL until interrupted",
		Long: cmdutil.Describe(`Publish what an API server has to PostgreSQL until interrupted.

One list and one watch of each resource serve all that follow the database, as informctl
run --postgres does, or programs with a ListerWatcher of the package postgres. Start two:
one publishes, and the other takes over when that is gone. They need no disk. Two that
publish different resources of one cluster need a --group each. Make the tables with
informctl postgres migrate first.

--all publishes every resource that can be listed and watched, without Secrets, which are
never published, and without events and leases, unless they are named. The server is asked
each minute what it serves.

--sql publishes nothing of a server: it writes what is published as jsonb, for questions
in SQL, to the schema kube.`),
		Example: `  informctl publish --all
  informctl publish pods deployments.apps --history 24h,1GiB
  informctl publish --sql --history 30d`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(cmd, args); err != nil {
				return err
			}
			return o.run(cmd)
		},
	}
	flags := cmd.Flags()
	o.kube.AddFlags(flags)
	cmdutil.CompleteContext(cmd, o.kube)
	flags.Lookup("namespace").Hidden = true // resources are published whole
	o.postgres.Add(cmd)
	o.Add(cmd, "Every resource that can be listed and watched, without events and leases.")
	flags.BoolVar(&o.sql, "sql", false, "Write what is published as jsonb to the schema kube, for questions in SQL.")
	flags.StringVar(&o.history, "history", "", "For how long a follower may be away and go on without a list: AGE, and BYTES of each resource at most, as 24h,1GiB, which is the default. With --sql, how long kube.history keeps a change; by default 30d.")
	cmdutil.RefuseEmpty(flags, "history", "write AGE, as 24h or 7d, or AGE,BYTES, as 24h,1GiB")
	flags.StringVar(&o.group, "group", "", "`NAME` of what takes turns: of the publishers of one group, one publishes. Deployments that publish different resources of one cluster need one each. By default the identity of the cluster.")
	cmdutil.RefuseEmpty(flags, "group", "it is no name")
	o.log.Add(cmd)
	o.metrics.Add(flags, "")
	return cmd
}

// complete checks the command line before any request is made.
func (o *options) complete(cmd *cobra.Command, args []string) error {
	if err := o.Parse(cmd, args); err != nil {
		return err
	}
	if o.sql && (o.All || len(o.Resources)+len(o.Exclude) > 0) {
		return cmdutil.Usagef(cmd, "--sql writes all that is published, so no resource is named")
	}
	if name := cluster.GivenFlag(cmd, "namespace"); o.sql && name != "" {
		return cmdutil.Usagef(cmd, "--sql asks no server: without --%s", name)
	}
	if !o.sql {
		if err := o.Check(cmd, "publishes"); err != nil {
			return err
		}
	}
	if *o.kube.Namespace != "" {
		return cmdutil.Usagef(cmd, "resources are published whole, not by namespace")
	}
	if err := o.metrics.Check(); err != nil {
		return cmdutil.Usagef(cmd, "%w", err)
	}
	if err := o.log.Check(cmd); err != nil {
		return err
	}
	r, err := cmdutil.ParseRetention(o.history)
	switch {
	case err != nil:
		return cmdutil.Usagef(cmd, "--history %w", err)
	case r.Off:
		return cmdutil.Usagef(cmd, "--history off: without a log, nobody could follow")
	case o.sql && o.group != "":
		return cmdutil.Usagef(cmd, "--group is of what is published, and --sql publishes nothing")
	case o.sql && r.Bytes > 0:
		return cmdutil.Usagef(cmd, "--history of --sql is an AGE only, as 30d")
	}
	if path := source.Served(o.kube); path != "" && !o.sql {
		return fmt.Errorf("the kubeconfig is the one that %s is served with, and would be published as a cluster; name that of the cluster with --kubeconfig", path)
	}
	o.keepAge, o.keepBytes = r.Age, r.Bytes
	return nil
}

func (o *options) run(cmd *cobra.Command) error {
	ctx, stop := cmdutil.Interruptible(cmd.Context())
	defer stop()
	logger := o.log.Logger(o.env.Streams.ErrOut)
	klog.SetLogger(logr.Discard()) // client-go logs the errors that it returns
	ctx = klog.NewContext(ctx, logger)
	of := &observed{group: o.group, sql: o.sql}
	end, err := o.metrics.Begin(ctx, logger, of.answers())
	if err != nil {
		return err
	}
	defer end()
	db, err := o.postgres.Await(ctx, cmd)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	defer func() { _ = db.Close() }()
	of.db.Store(db)
	if o.sql {
		return db.Project(ctx, postgres.ProjectOptions{Keep: o.keepAge})
	}
	config, err := cluster.Config(o.kube)
	if err != nil {
		return err
	}
	collections, err := o.await(ctx, config)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	for ctx.Err() == nil {
		var scopes []store.Scope
		for _, c := range collections {
			scopes = append(scopes, c.Scope)
		}
		of.scopes.Store(&scopes)
		if collections, err = o.publish(ctx, db, config, collections); err != nil {
			return err
		}
	}
	return nil
}

// unlessEnded returns nil once ctx has ended, which is how publish ends, and else
// err.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// publish publishes collections until the context ends or, with --all, the server serves
// others, which it returns: it has more, or two answers in a row lack some. Servers of
// two versions may answer in turn.
func (o *options) publish(ctx context.Context, db *postgres.DB, config *rest.Config, collections map[string]postgres.Collection) (next map[string]postgres.Collection, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	next = collections
	asked := make(chan struct{})
	go func() { // ends with ctx
		defer close(asked)
		missed := false
		for o.All {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Minute):
			}
			now, err := o.resolve(ctx, config)
			for name, c := range collections {
				// An aggregated API that does not answer is there, all the same.
				if err == nil && o.served.IsUnknown(c.Scope.Kind.Group) {
					now[name] = c
				}
			}
			if err != nil {
				continue
			}
			var others bool
			if others, missed = serves(now, collections, missed); others {
				klog.FromContext(ctx).Info("The server serves other resources now")
				next = now
				cancel()
				return
			}
		}
	}()
	names := slices.Sorted(maps.Keys(collections))
	list := make([]postgres.Collection, 0, len(names))
	for _, name := range names {
		list = append(list, collections[name])
	}
	err = db.Publish(ctx, list, postgres.PublishOptions{Group: pgflags.Group(list[0].Scope.Cluster, o.group), KeepAge: o.keepAge, KeepBytes: o.keepBytes})
	cancel()
	<-asked
	return next, err
}

// serves reports whether a server serves others than the wanted collections: it has more,
// or two answers in a row lack some. before says whether the last one did, and lacked
// whether this one does. What another cluster answers does not count: while the address
// leads there, Publish calls the scopes failed.
func serves(now, wanted map[string]postgres.Collection, before bool) (others, lacked bool) {
	clusters := sets.New[string]()
	for _, c := range wanted {
		clusters.Insert(c.Scope.Cluster)
	}
	for _, c := range now {
		if !clusters.Has(c.Scope.Cluster) {
			return false, before
		}
	}
	lacked = lacks(now, wanted)
	isMore := !sets.KeySet(wanted).IsSuperset(sets.KeySet(now))
	return isMore || lacked && before, lacked
}

// lacks reports whether a server has some of the wanted collections not, or in another
// version.
func lacks(there, wanted map[string]postgres.Collection) bool {
	for name, c := range wanted {
		if there[name].Scope != c.Scope {
			return true
		}
	}
	return false
}

// await waits until the server says what it serves.
func (o *options) await(ctx context.Context, config *rest.Config) (map[string]postgres.Collection, error) {
	collections, err := cmdutil.Persist(ctx, cluster.Backoff().Step, func() (map[string]postgres.Collection, error) { return o.resolve(ctx, config) },
		cluster.Passes, func(err error) {
			cmdutil.Warnings(klog.FromContext(ctx)).Info("Server cannot be reached, trying again", "server", config.Host, "because", cmdutil.OneLine(err))
		})
	return collections, cluster.DescribeUnreached(err, config.Host)
}

// resolve asks the server for the collections, by resource.
func (o *options) resolve(ctx context.Context, config *rest.Config) (map[string]postgres.Collection, error) {
	srv, err := cluster.NewServer(config)
	if err != nil {
		return nil, err
	}
	cached, mapper, err := srv.Mapper(ctx)
	if err != nil {
		return nil, err
	}
	mappings, err := cluster.MappingsOf(ctx, cached, mapper, o.Resources)
	if err == nil {
		err = cluster.CheckVerbs(ctx, cached, mappings, false)
	}
	if err == nil && o.All {
		var others []*meta.RESTMapping
		others, err = o.everything(ctx, cached, mapper)
		mappings = append(mappings, others...)
	}
	if err != nil {
		return nil, err
	}
	identity, err := informer.ClusterIdentity(ctx, config)
	if err != nil {
		return nil, err
	}
	return o.collections(config, identity, mappings)
}

// collections returns the collections of mappings, by resource.
func (o *options) collections(config *rest.Config, identity string, mappings []*meta.RESTMapping) (map[string]postgres.Collection, error) {
	out := map[string]postgres.Collection{}
	for _, m := range mappings {
		scope := store.Scope{Cluster: identity, Resource: cluster.NameOf(m), Kind: m.GroupVersionKind}
		c, err := postgres.NewCollection(config, scope)
		if errors.Is(err, postgres.ErrSecrets) && o.All {
			continue
		}
		if err != nil {
			return nil, err
		}
		if other, isThere := out[scope.Resource]; isThere {
			return nil, fmt.Errorf("%s is named in two versions, %s and %s; name one", scope.Resource, other.Scope.Kind.Version, scope.Kind.Version)
		}
		out[scope.Resource] = c
	}
	if len(out) == 0 {
		return nil, errors.New("there is nothing to publish")
	}
	return out, nil
}

// everything returns what --all publishes of what the server serves.
func (o *options) everything(ctx context.Context, d discovery.DiscoveryInterfaceWithContext, mapper meta.RESTMapper) ([]*meta.RESTMapping, error) {
	if o.excluded == nil { // a custom resource may go later
		excluded, err := o.Excluded(mapper)
		if err != nil {
			return nil, err
		}
		o.excluded = excluded
	}
	all, err := cluster.DiscoverAll(ctx, d)
	if err != nil {
		return nil, err
	}
	o.served = all
	return slices.DeleteFunc(all.Followed, func(m *meta.RESTMapping) bool {
		return o.excluded.Has(cluster.NameOf(m)) || resources.IsFrequent(cluster.NameOf(m))
	}), nil
}
