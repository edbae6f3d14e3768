package ingest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/informer/internal/delivery"
	"github.com/informctl/informctl/informer/internal/heal"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/mem"
)

// TestReachedOfOtherHistory checks that nothing of a history that was rewound counts as
// reached, also if the list that replaces it cannot begin, or another one begins.
func TestReachedOfOtherHistory(t *testing.T) {
	p := newPipeline(t, nil)
	list(t, p, "10", object("a", "1", "9"))
	s := &refusing{Store: p.store, refuses: true}
	p.store = s
	if _, err := p.Relist(t.Context(), reflector.Rewound); err == nil {
		t.Fatal("the list begins")
	}
	at := func(what string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := p.state.Await(ctx, "5"); err == nil {
			t.Errorf("%s: not older than 5 of the new history: %v", what, err)
		}
	}
	at("the list has not begun")
	s.refuses = false
	// This was asked for meanwhile.
	l, err := p.Relist(t.Context(), "the ListerWatcher changes objects")
	if err != nil {
		t.Fatal(err)
	}
	at("a list for another reason runs")
	_ = l.Close()
	at("it has broken")
}

// unwritable is a store that cannot be invalidated while it has an error.
type unwritable struct {
	store.Store
	err error
}

func (s *unwritable) Invalidate(ctx context.Context, reason string) error {
	if s.err != nil {
		return s.err
	}
	return s.Store.Invalidate(ctx, reason)
}

// TestRewoundNoted checks that a rewind counts as noted once the scope itself says so on
// disk, and not before: a process that dies in between must find it in the ledger.
func TestRewoundNoted(t *testing.T) {
	p := newPipeline(t, nil)
	list(t, p, "10", object("a", "1", "9"))
	noted := 0
	p.opts.RewoundNoted = func(context.Context) { noted++ }
	s := &unwritable{p.store, errors.New("disk full")}
	p.store = s
	for _, want := range []int{0, 1} { // the second list ends, and what it has is written
		l, err := p.Relist(t.Context(), reflector.Rewound)
		if err != nil {
			t.Fatal(err)
		}
		if noted != 0 {
			t.Errorf("noted %d times after %v", noted, s.err)
		}
		if want == 1 {
			if err := l.Finish(t.Context(), "20"); err != nil {
				t.Fatal(err)
			}
		}
		if _ = l.Close(); noted != want {
			t.Errorf("noted %d times, want %d", noted, want)
		}
	}
}

// finding is a store during whose Relist an audit ends.
type finding struct {
	store.Store
	mu      sync.Mutex
	found   func()
	rewound int
	relists int
}

func (s *finding) Relist() (store.Relist, error) {
	s.mu.Lock()
	f := s.found
	s.found = nil
	s.relists++
	s.mu.Unlock()
	if f != nil {
		f()
	}
	return s.Store.Relist()
}

func (s *finding) Apply(b store.Batch) error {
	s.mu.Lock()
	if b.Rewound {
		s.rewound++
	}
	s.mu.Unlock()
	return s.Store.Apply(b)
}

// TestAuditWhileListBegins checks that another history that an audit finds while a list
// begins is listed anew.
func TestAuditWhileListBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := codec.For(&corev1.ConfigMap{})
		if err != nil {
			t.Fatal(err)
		}
		server := fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
		if _, err := server.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}); err != nil {
			t.Fatal(err)
		}
		scope := store.Scope{Resource: "configmaps", Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Form: store.Typed}
		inner, err := mem.New().Open(scope, store.Options{Codec: c})
		if err != nil {
			t.Fatal(err)
		}
		s := &finding{Store: inner}
		hub := delivery.New(delivery.Env{
			Failed: func(err error) { t.Error(err) }, Handed: func(runtime.Object) {},
			Blank: func(string) runtime.Object { return &corev1.ConfigMap{} },
			Dir:   t.TempDir, Name: t.Name,
		}, 0)
		state := heal.New(hub.Urge)
		p := New(Options{
			Store: s, Hub: hub, State: state, ListerWatcher: server, Scope: scope, Codec: c,
			Example: &corev1.ConfigMap{}, Applied: func(string) {}, OnError: func(_ context.Context, err error) { t.Log(err) },
		})
		state.Claim()
		state.Open(t.Context(), heal.Opened{Show: func() {}, Relist: p.Reflector().Relist})
		hub.Begin()
		p.Open(hub.Open(s, false))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); p.Run(ctx) }()
		<-hub.Synced()
		s.mu.Lock()
		s.found = func() { // run.audit's Other
			p.OtherHistory()
			p.Reflector().Relist("an audit found another history")
		}
		s.mu.Unlock()
		p.Reflector().Relist("something else")
		<-time.After(time.Hour)
		synctest.Wait()
		s.mu.Lock()
		if s.rewound == 0 {
			t.Errorf("an hour after the audit: %d lists, none of another history; other is %t", s.relists, p.other.Load() != sameHistory)
		}
		s.mu.Unlock()
		cancel()
		<-done
		hub.End()
		hub.Wait()
	})
}
