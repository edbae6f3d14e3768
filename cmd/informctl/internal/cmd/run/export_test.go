package run

import (
	"context"
	"io"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/cmd/informctl/internal/cluster"
	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/store"
)

// Follow follows a collection of pods until the context ends, as run does.
func Follow(ctx context.Context, db store.Backend, lw cache.ListerWatcherWithContext) error {
	f, err := newPodFollower(db, lw)
	if err != nil {
		return err
	}
	return f.run(ctx)
}

// FollowOnce follows a collection of pods until it is written, as run --once does.
func FollowOnce(ctx context.Context, db store.Backend, lw cache.ListerWatcherWithContext) error {
	f, err := newPodFollower(db, lw)
	if err != nil {
		return err
	}
	ctx, f.stop = context.WithCancel(ctx)
	defer f.stop()
	f.once = true
	return f.run(ctx)
}

// Progress does what Follow does, and shows the progress of the first list. progressed is
// closed when that is no longer shown.
func Progress(ctx context.Context, db store.Backend, lw cache.ListerWatcherWithContext, progressed chan<- struct{}) error {
	f, err := newPodFollower(db, lw)
	if err != nil {
		return err
	}
	go func() {
		defer close(progressed)
		newProgress(cmdutil.NewTerminal(io.Discard), klog.FromContext(ctx), []*follower{f}).run(ctx)
	}()
	return f.run(ctx)
}

// FollowAll does what Follow does for several collections, whose outages are logged once.
func FollowAll(ctx context.Context, db store.Backend, of map[store.Scope]cache.ListerWatcherWithContext) error {
	shared := &outages{logger: klog.FromContext(ctx), server: "https://test"}
	var running sync.WaitGroup
	defer running.Wait()
	for scope, lw := range of {
		f, err := newFollowerOf(db, scope, lw)
		if err != nil {
			return err
		}
		f.outages = shared
		running.Go(func() { _ = f.run(ctx) })
	}
	return nil
}

func newPodFollower(db store.Backend, lw cache.ListerWatcherWithContext) (*follower, error) {
	return newFollowerOf(db, store.Scope{Cluster: "one", Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")}, lw)
}

func newFollowerOf(db store.Backend, scope store.Scope, lw cache.ListerWatcherWithContext) (*follower, error) {
	return (&options{}).newFollower(&cluster.Collection{
		Scope:   scope,
		Example: &corev1.Pod{}, List: lw.ListWithContext, Watch: lw.WatchWithContext,
	}, db)
}
