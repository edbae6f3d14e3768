package run

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/informctl/informctl/cmd/informctl/internal/cluster"
	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/serving"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/relay"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// beginServing serves the file as a Kubernetes API until end is called.
func (o *options) beginServing(ctx context.Context, db *bolt.DB, documents *relay.Documents, logger logr.Logger, of *observed) (end func(), err error) {
	if err := db.Suspended(); err != nil {
		return nil, fmt.Errorf("--serve serves a file: %w", err)
	}
	values, _ := db.Ledger(ctx, wire.ServerLedger) // else there is no version
	last := o.lastCluster(ctx, db)
	documents.Of(ctx, last)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var ended sync.WaitGroup
	begun, failed := make(chan struct{}), make(chan error, 1)
	ended.Go(func() {
		from := &servedScopes{db: db, of: of, cluster: last, views: map[string]store.Store{}}
		options := relay.Options{
			Secrets: o.servesSecret, Documents: documents, ServerVersion: string(values[wire.ServerVersionOf(last)]), Logger: logger,
		}
		err := serving.Serve(ctx, from, options, serving.RunPath(o.database.Path), o.servePort, func(l *relay.Local) {
			logger.Info("Serving", "kubeconfig", l.Kubeconfig, "address", l.Addr().String())
			close(begun)
		})
		select {
		case <-begun:
			if err != nil {
				logger.Error(err, "No longer served")
			}
		default:
		}
		failed <- err
	})
	end = func() {
		cancel()
		ended.Wait()
	}
	select {
	case <-begun:
		return end, nil
	case err := <-failed:
		end()
		return nil, err
	}
}

// clusters is the ledger of the clusters that were last found at an address: until the
// server is reached, --serve serves what the file has of that cluster.
const clusters = "informctl/clusters"

// lastCluster returns the cluster that is served until the server is reached: the one
// that was last found at its address. It is "" if none was. A database has no address;
// then it is the cluster that was followed last.
func (o *options) lastCluster(ctx context.Context, db *bolt.DB) string {
	if !o.follows {
		config, err := cluster.Config(o.kube)
		if err != nil {
			return "" // connect returns it
		}
		values, _ := db.Ledger(ctx, clusters) // else none is known
		return string(values[cluster.AddressOf(config)])
	}
	infos, _ := db.Scopes() // else none is known
	var newest store.Info
	var last time.Time
	for _, info := range infos {
		at := info.Checkpoint.Time
		if at.After(time.Now()) {
			at = time.Unix(0, 0) // the clock was ahead: any other one is later
		}
		if strings.HasPrefix(info.Scope.Cluster, o.cluster) && at.After(last) {
			newest, last = info, at
		}
	}
	return newest.Scope.Cluster
}

// servedScopes are the scopes of a run: those that are followed and, until they are
// opened, those that the file has.
type servedScopes struct {
	db *bolt.DB
	of *observed
	// cluster is that of the scopes that are served until the server is reached; "" for
	// none.
	cluster string

	mu    sync.Mutex             // protects the fields below
	views map[string]store.Store // of the file, by the ID of the scope

	recent []store.Info // see recentScopes
	asked  time.Time
}

// Collections implements relay.Source.
func (s *servedScopes) Collections() (out []relay.Collection) {
	fs := s.of.Load()
	if fs == nil {
		return s.stored()
	}
	for _, f := range fs.list() {
		c := relay.Collection{Scope: f.Scope, Reader: f.informer.Reader(), Live: true, Note: serving.Note(f.Scope, "", fs.cluster.version)}
		if !f.informer.Opened() {
			if v := s.view(f.Scope.ID()); v != nil {
				c.Reader = v
			}
		}
		// What the server refuses to list will not be there, and is not waited for.
		if f.isDenied() {
			if state, err := c.Reader.History(); err == nil && state.Readable.IsZero() {
				continue
			}
		}
		out = append(out, c)
	}
	return append(out, s.unknown(fs)...)
}

// unknown returns what the file has of the API groups that the server could not name the
// resources of, as those of an aggregated API that is down: they are followed when it
// can.
func (s *servedScopes) unknown(fs *followers) (out []relay.Collection) {
	known := fs.everything()
	if known == nil || len(known.Unknown) == 0 {
		return nil
	}
	followers := fs.list()
	for _, info := range s.recentScopes() {
		if !info.Complete || source.IsGone(info) || info.Scope.Cluster != fs.cluster.identity ||
			!known.IsUnknown(info.Scope.Kind.Group) || fs.cluster.excluded.Has(info.Scope.Resource) || isHeld(followers, info.Scope) || replacing(followers, info.Scope) != nil {
			continue
		}
		if v := s.view(info.ID); v != nil {
			note := serving.WithNote("the server does not answer for "+info.Scope.Kind.Group, serving.Note(info.Scope, info.TransformVersion, fs.cluster.version))
			out = append(out, relay.Collection{Scope: info.Scope, Reader: v, Live: true, Note: note})
		}
	}
	return out
}

// recently is how old an answer of recentScopes may be. The scopes of a file that nobody
// follows do not change, and to describe all takes time.
const recently = 5 * time.Second

// recentScopes returns the scopes of the file as they were read last.
func (s *servedScopes) recentScopes() []store.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.asked) > recently {
		if infos, err := s.db.Scopes(); err == nil {
			s.recent = infos
		}
		s.asked = time.Now()
	}
	return s.recent
}

// stored returns what the file has of the cluster that is served.
func (s *servedScopes) stored() (out []relay.Collection) {
	for _, info := range s.recentScopes() {
		if !info.Complete || source.IsGone(info) || s.cluster == "" || info.Scope.Cluster != s.cluster {
			continue
		}
		if v := s.view(info.ID); v != nil {
			out = append(out, relay.Collection{Scope: info.Scope, Reader: v, Live: true, Note: serving.Note(info.Scope, info.TransformVersion, "")})
		}
	}
	return out
}

// view returns a scope of the file, nil if it is not there.
func (s *servedScopes) view(id string) store.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.views[id]; ok {
		return v
	}
	v, _, err := s.db.View(id)
	if err != nil {
		return nil
	}
	s.views[id] = v
	return v
}

// keepsDocuments reports whether the file gets discovery and schemas, with which it can
// be served.
func (o *options) keepsDocuments() bool { return !o.follows && (o.serves || o.All) }

const (
	documentsEvery = 10 * time.Minute
	documentsRetry = time.Minute
	// documentsAgain is when they are fetched a second time: a server that has just
	// started does not have the schemas of custom resources yet.
	documentsAgain = 10 * time.Second
)

// keepDocuments keeps discovery and schemas of the server in the file, until ctx ends.
func (fs *followers) keepDocuments(ctx context.Context, logger logr.Logger) {
	documents := fs.cluster.documents
	said, again := false, documentsAgain
	for ctx.Err() == nil {
		wait := again
		err := fs.isHome(ctx)
		if err == nil {
			err = documents.Fetch(ctx, fs.cluster.Config)
		}
		if err != nil && ctx.Err() == nil {
			if wait = documentsRetry; !said {
				cmdutil.Warnings(logger).Info("Discovery and schemas of the server were not fetched, trying again", "because", cmdutil.OneLine(err))
			}
			said = true
		} else {
			again = documentsEvery
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}
