package run

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/cmd/informctl/internal/cluster"
	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/metrics"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// maxFirstLists is how many first lists of run --all are made at a time.
const maxFirstLists = 8

// followers are the followers of a run. With --all they come and go with the definitions
// of custom resources.
type followers struct {
	o       *options
	db      *bolt.DB
	cluster *connection
	logger  logr.Logger
	outages *outages
	scraped http.Handler  // of the followers' metrics
	slots   chan struct{} // one element per first list; nil: no bound
	running sync.WaitGroup
	// old has since when the clock says that a log that is left is too old, by its ID.
	old map[string]time.Time

	mu      sync.Mutex // protects the fields below, and writes of cluster.everything
	all     []*follower
	errs    []error
	missing []string // named resources that are not published yet
}

// newFollowers returns followers of the collections, which do not run yet.
func (o *options) newFollowers(c *connection, db *bolt.DB, logger logr.Logger) (*followers, error) {
	fs := &followers{
		o: o, db: db, old: map[string]time.Time{}, cluster: c, missing: c.missing, logger: logger,
		outages: &outages{logger: logger, server: c.Config.Host},
	}
	fs.scraped = metricsHandler(fs)
	if o.All {
		fs.slots = make(chan struct{}, maxFirstLists)
	}
	infos, err := fs.stored()
	if err != nil {
		return nil, err
	}
	if c.published != nil {
		c.published.hold(infos)
	}
	scopes := make([]store.Scope, len(c.collections))
	for i, collection := range c.collections {
		scopes[i] = collection.Scope
	}
	switch unknown, err := o.history.check(scopes); {
	case unknown && (o.All || len(c.missing) > 0): // it may come later
		o.env.Note("%s", err)
	case err != nil:
		return nil, err
	}
	for _, collection := range c.collections {
		f, err := fs.newFollower(collection)
		if err != nil {
			return nil, err
		}
		f.warm = slices.ContainsFunc(infos, func(i store.Info) bool { return i.ID == f.Scope.ID() && i.Complete })
		fs.all = append(fs.all, f)
	}
	return fs, nil
}

func (fs *followers) newFollower(collection *cluster.Collection) (*follower, error) {
	f, err := fs.o.newFollower(collection, fs.db)
	if err != nil {
		return nil, err
	}
	f.slots, f.outages, f.inMemory = fs.slots, fs.outages, fs.db.Suspended() != nil
	return f, nil
}

// stored returns the scopes of the file; without a file there are none.
func (fs *followers) stored() ([]store.Info, error) {
	if fs.db.Suspended() != nil {
		return nil, nil
	}
	infos, err := fs.db.Scopes()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", fs.db.Path(), err)
	}
	return infos, nil
}

// list returns the followers that there are now.
func (fs *followers) list() []*follower {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return slices.Clone(fs.all)
}

// everything returns what the server serves, nil without --all.
func (fs *followers) everything() *cluster.Everything {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.cluster.everything
}

// start runs a follower until ctx ends or remove is called.
func (fs *followers) start(ctx context.Context, f *follower) {
	ctx, f.stop = context.WithCancel(ctx)
	fs.running.Go(func() {
		defer close(f.ended)
		if err := f.run(ctx); err != nil {
			fs.mu.Lock()
			defer fs.mu.Unlock()
			fs.errs = append(fs.errs, err)
		}
	})
}

// add starts a follower of a collection that has come.
func (fs *followers) add(ctx context.Context, collection *cluster.Collection) error {
	f, err := fs.newFollower(collection)
	if err != nil {
		return err
	}
	fs.mu.Lock()
	fs.all = append(fs.all, f)
	fs.mu.Unlock()
	fs.start(ctx, f)
	return nil
}

// remove ends a follower and blocks until it has ended.
func (fs *followers) remove(f *follower) {
	fs.mu.Lock()
	fs.all = slices.DeleteFunc(fs.all, func(other *follower) bool { return other == f })
	fs.mu.Unlock()
	f.stop()
	<-f.ended
}

// wait blocks until all followers have ended. It returns their errors.
func (fs *followers) wait() error {
	fs.running.Wait()
	return errors.Join(fs.errs...)
}

// Informers implements inspect.Source.
func (fs *followers) Informers() []*informer.Informer {
	var informers []*informer.Informer
	for _, f := range fs.list() {
		informers = append(informers, f.informer)
	}
	return informers
}

// Status implements inspect.Source and the interface that metrics.New needs.
func (fs *followers) Status() []informer.Status { return informer.Statuses(fs.Informers()) }

// Backend implements inspect.Source.
func (fs *followers) Backend() store.Backend { return fs.db }

// metricsHandler returns a handler that serves the metrics of f's informers.
func metricsHandler(f interface{ Status() []informer.Status }) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.New(f))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// dropUnlisted drops the scopes of which nothing was ever received, as those that the
// server refuses: readers would report each as incomplete from then on.
func (fs *followers) dropUnlisted() error {
	infos, err := fs.stored()
	if err != nil {
		return nil //nolint:nilerr // closing the file reports what is wrong with it
	}
	drop := map[string]bool{}
	for _, f := range fs.list() {
		status := f.informer.Status()
		drop[f.Scope.ID()] = !f.warm && status.Lists == 0 && status.Objects == 0
	}
	return fs.drop(slices.DeleteFunc(infos, func(i store.Info) bool {
		return !drop[i.ID] || i.Complete || i.Objects > 0 || i.Log.Entries > 0
	}))
}

// drop drops scopes that no follower holds.
func (fs *followers) drop(infos []store.Info) error {
	if len(infos) == 0 {
		return nil
	}
	_, err := fs.db.Wipe(func(scope store.Scope) bool {
		return slices.ContainsFunc(infos, func(i store.Info) bool { return i.ID == scope.ID() })
	})
	return err
}

// note records a value in the file.
func (fs *followers) note(ctx context.Context, ledger, key, value string) error {
	values, err := fs.db.Ledger(ctx, ledger)
	if err == nil && string(values[key]) != value {
		err = fs.db.SetLedger(ctx, ledger, map[string][]byte{key: []byte(value)})
	}
	return err
}

// noteServer records the version of the server and its cluster in the file, and says
// once, when all is listed, that it is newer than the types.
func (fs *followers) noteServer(ctx context.Context, logger logr.Logger) {
	server := fs.cluster.version
	warn := cmdutil.Warnings(logger)
	var err error
	if server != "" { // else it did not say: what is noted stays
		for _, name := range []string{wire.ServerVersion, wire.ServerVersionOf(fs.cluster.identity)} {
			err = errors.Join(err, fs.note(ctx, wire.ServerLedger, name, server))
		}
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		warn.Info("The version of the server was not recorded", "because", err.Error())
	default:
		address := cluster.AddressOf(fs.cluster.Config)
		if address == "" {
			break
		}
		if err := fs.note(ctx, clusters, address, fs.cluster.identity); err != nil && ctx.Err() == nil {
			warn.Info("The cluster of the server was not recorded", "because", err.Error())
		}
	}
	if !cmdutil.IsNewer(server) {
		return
	}
	objects := 0
	for _, f := range fs.list() {
		for !cache.IsDone(f.informer.HasSyncedChecker()) && !f.isDenied() && ctx.Err() == nil {
			select {
			case <-f.informer.HasSyncedChecker().Done():
			case <-time.After(time.Second): // it may be refused by then
			case <-ctx.Done():
			}
		}
		if f.Scope.Form == store.Typed {
			objects += f.informer.Status().Objects
		}
	}
	warn.Info("The server is newer than the types of this program, fields that they do not know are left out", "server", server, "types", fmt.Sprintf("1.%d", cmdutil.TypesMinor), "objects", objects)
}
