package informer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer/internal/cluster"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/mem"
)

func (inf *Informer) openMemory(indexers cache.Indexers) (store.Store, error) {
	return mem.New().Open(inf.scope, store.Options{Codec: inf.codec, Indexers: indexers, Indexes: inf.opts.Indexes})
}

// openStore opens the scope, in memory if it may not or cannot be persisted: a cache must
// not be able to take its controller down (promise 5). scopeErr is why the scope is not
// known. The caller holds indexersMu.
func (inf *Informer) openStore(ctx context.Context, scope store.Scope, scopeErr error) store.Store {
	indexers := inf.store.Indexers()
	for _, idx := range inf.opts.Indexes {
		delete(indexers, idx.Name)
	}
	if inf.opts.Backend != nil {
		var s store.Store
		err := scopeErr
		if err == nil {
			s, err = inf.openPersistent(ctx, scope, indexers)
		}
		if err == nil {
			return s
		}
		unusable := scopeErr == nil && !isExpectedInMemory(err)
		if isExpectedInMemory(err) {
			klog.FromContext(ctx).Info("Not persisted, held in memory", "because", err.Error())
		} else {
			klog.FromContext(ctx).Error(err, "NOT PERSISTED: all objects are listed at each start and held in memory")
		}
		inf.mu.Lock()
		inf.findings.memory, inf.findings.unusable = err.Error(), unusable
		inf.mu.Unlock()
	}
	s, err := inf.openMemory(indexers)
	if err != nil {
		panic(err) // New has opened a store with the same options
	}
	return s
}

// spillDir returns the directory of the database; "" means the system's temporary
// directory.
func (inf *Informer) spillDir() string {
	if path := inf.databasePath(); path != "" {
		return filepath.Dir(path)
	}
	return ""
}

// databasePath returns the path of the database, "" if the backend has no file.
func (inf *Informer) databasePath() string {
	if s, ok := inf.opts.Backend.(interface{ Suspended() error }); ok && s.Suspended() != nil {
		return ""
	}
	if located, ok := inf.opts.Backend.(interface{ Path() string }); ok {
		return located.Path()
	}
	return ""
}

// isExpectedInMemory reports whether a correct program can cause the error that prevents
// a scope from being persisted, for example Secrets without an encryption key or a scope
// that another informer holds.
func isExpectedInMemory(err error) bool {
	return errors.Is(err, store.ErrNoKey) || errors.Is(err, store.ErrInUse) || errors.Is(err, store.ErrClosed) ||
		errors.Is(err, context.Canceled)
}

// findScope returns the caller's scope. For an informer of a Factory, it finds the scope
// with a request through the ListerWatcher.
func (inf *Informer) findScope(ctx context.Context) (store.Scope, error) {
	if inf.factory == nil {
		return inf.scope, nil
	}
	scope, client, err := inf.factory.finder.Scope(ctx, inf.lw, inf.example, func(err error) { inf.waits(ctx, err) })
	if err != nil {
		return scope, err
	}
	scope.Form = inf.scope.Form
	if scope, err = scope.Canonical(); err != nil {
		return scope, err
	}
	inf.mu.Lock()
	defer inf.mu.Unlock()
	inf.scope, inf.verifier = scope, cluster.NewVerifier(client, inf.lw, scope.Cluster)
	return scope, nil
}

// waits reports an error because of which the informer waits for its scope.
func (inf *Informer) waits(ctx context.Context, cause error) {
	inf.mu.Lock()
	was := inf.findings.waits
	inf.findings.waits = waits{last: cause.Error(), time: time.Now(), n: was.n + 1}
	inf.mu.Unlock()
	inf.onError(ctx, cause)
}

func (inf *Informer) openPersistent(ctx context.Context, scope store.Scope, indexers cache.Indexers) (store.Store, error) {
	if scope.Kind.Empty() {
		return nil, fmt.Errorf("the kind of a %T is not known; name it in Scope", inf.example)
	}
	opts := store.Options{
		Codec: inf.codec, Indexers: indexers, Indexes: inf.opts.Indexes,
		TransformVersion: inf.transformVersion(),
		Fresh:            inf.transform != nil && inf.transformVersion() == "",
		DecodedBytes:     inf.opts.DecodedBytes,
		Rejected: func(bad *store.ObjectError) {
			inf.state.Unindexed(bad)
			klog.FromContext(ctx).Error(bad, "Stored object is not in an index", "key", bad.Key)
		},
	}
	if opts.Fresh {
		// Else a start without the transform would resume transformed objects.
		opts.TransformVersion = "unversioned"
	}
	var s store.Store
	var err error
	if inf.factory != nil {
		opts.DecodedGroup = inf.factory
		s, err = inf.factory.open(ctx, inf, scope, opts)
	} else {
		if scope.Cluster == "" {
			klog.FromContext(ctx).Info("Scope names no cluster: what is stored is resumed against whichever server answers")
		}
		s, err = inf.opts.Backend.Open(scope, opts)
	}
	if err != nil {
		return nil, err
	}
	if err := cluster.DropForeign(s); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// withoutIndexes returns the indexers without those that an index with an identity
// replaces: callers often pass the namespace function both ways.
func withoutIndexes(indexers cache.Indexers, indexes []index.Index) cache.Indexers {
	out := maps.Clone(indexers)
	for _, idx := range indexes {
		if fn := out[idx.Name]; fn != nil && index.IsNamespace(fn) && index.IsNamespace(idx.Func) {
			delete(out, idx.Name)
		}
	}
	return out
}
