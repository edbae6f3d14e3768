package informer

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/clocktest"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/mem"
)

// TestStatusOfOneMoment checks that no Status says that an informer has synced that has
// not caught up: HasSynced waits for that.
func TestStatusOfOneMoment(t *testing.T) {
	const informers = 100
	torn := 0
	for range informers {
		lw := &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
		}
		inf, err := New(noStreams{lw}, &corev1.ConfigMap{}, Options{NoProbe: true})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
		done := make(chan struct{})
		go func() { defer close(done); inf.RunWithContext(ctx) }()
		for {
			s := look(inf)
			if s.Synced && !s.CaughtUp {
				torn++
				if torn == 1 {
					t.Logf("synced, and behind: %s", s.Behind)
				}
			}
			if s.CaughtUp && s.Synced {
				break
			}
		}
		cancel()
		<-done
	}
	if torn > 0 {
		t.Errorf("%d of %d informers", torn, informers)
	}
}

// asOf is a store whose content was last heard of at a time.
type asOf struct {
	store.Store
	time time.Time
}

func (s asOf) Checkpoint() store.Checkpoint { return store.Checkpoint{RV: "1", Time: s.time} }

// TestAgeOverSleep checks that the age of a checkpoint counts while the machine sleeps.
func TestAgeOverSleep(t *testing.T) {
	c, err := codec.For(&corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	db := mem.New()
	defer func() { _ = db.Close() }()
	held, err := db.Open(store.Scope{Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")}, store.Options{Codec: c})
	if err != nil {
		t.Fatal(err)
	}
	s := Status{Time: time.Now()}
	s.setStore(asOf{held, clocktest.Stepped(time.Hour)})
	if age := s.Checkpoint.AgeSeconds; age < 3590 {
		t.Errorf("the age is %v seconds, want an hour", age)
	}
}

type noStreams struct{ *cache.ListWatch }

func (noStreams) IsWatchListSemanticsUnSupported() bool { return true }
