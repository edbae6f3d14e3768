package fakeapi_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/informctl/informctl/internal/fakeapi"
)

// TestHold checks that paged and streamed lists wait, and that watches do not.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, fakeapi.Options{})
		stream := metav1.ListOptions{
			AllowWatchBookmarks: true, SendInitialEvents: ptr.To(true),
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		}
		s.Hold()
		s.Hold()
		ctx, cancel := context.WithCancel(t.Context())
		failed, listed := make(chan error, 1), make(chan []string, 1)
		go func() {
			_, err := s.ListWithContext(ctx, metav1.ListOptions{})
			failed <- err
		}()
		go func() { listed <- names(list(t, s, metav1.ListOptions{})) }()
		streamed, watched := open(t, s, stream), open(t, s, metav1.ListOptions{ResourceVersion: "3"})
		must(t)(s.Delete("ns/a"))
		want(t, events(streamed))
		want(t, names(list(t, s, metav1.ListOptions{Limit: 1})), "b@3")
		want(t, events(watched), "ADDED c@4", "DELETED a@5")
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the context's error", err)
		}
		s.Release()
		s.Release()
		want(t, <-listed, "b@3", "c@4")
		want(t, events(streamed), "ADDED a@2", "ADDED b@3", "ADDED c@4", "BOOKMARK @4 initial", "DELETED a@5")
		s.Hold()
		streamed.Stop()
		again := open(t, s, stream)
		again.Stop()
		want(t, events(again), "closed")
		s.Release()
		s.CloseWatches()
	})
}

func TestMaxPage(t *testing.T) {
	s := newServer(t, fakeapi.Options{MaxPage: 2})
	for limit, page := range map[int64][]string{0: {"a@2", "b@3"}, 1: {"a@2"}, 9: {"a@2", "b@3"}} {
		first := list(t, s, metav1.ListOptions{Limit: limit})
		want(t, names(first), page...)
		second := list(t, s, metav1.ListOptions{Limit: limit, Continue: first.Continue})
		if got := names(second)[0]; got == page[0] {
			t.Errorf("limit %d: the second page begins with %s, as the first", limit, got)
		}
	}
	want(t, names(list(t, s, metav1.ListOptions{ResourceVersion: "0", Limit: 1})), "a@2", "b@3", "c@4")
}
