package mem_test

import (
	"errors"
	"testing"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/mem"
	"github.com/informctl/informctl/store/storetest"
)

func config() storetest.Config {
	return storetest.Config{Open: func(*testing.T, string) store.Backend { return mem.New() }}
}

func TestSuite(t *testing.T) { storetest.Run(t, config()) }

func TestModel(t *testing.T) { storetest.RunModel(t, config()) }

// TestFollowOfAnotherContent checks that Follow ends when the scope is opened with
// another transform: what it followed is no more.
func TestFollowOfAnotherContent(t *testing.T) {
	db := mem.New()
	open := func(transform string) store.Store {
		t.Helper()
		s, err := db.Open(store.Scope{Resource: "configmaps"}, store.Options{TransformVersion: transform})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := open("")
	if err := first.Apply(store.Batch{RV: "1"}); err != nil {
		t.Fatal(err)
	}
	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for e, err := range first.Follow(t.Context(), store.Place{}) {
			if err != nil {
				ended <- err
				return
			}
			if e.Mark != nil {
				close(begun)
			}
		}
	}()
	<-begun
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	early := make(chan error, 1)
	go func() {
		for _, err := range first.Follow(t.Context(), store.Place{RV: "50"}) {
			early <- err
		}
	}()
	second := open("another")
	if err := <-early; !errors.Is(err, store.ErrLineage) && !errors.Is(err, store.ErrClosed) {
		t.Errorf("Follow of what is to come ends with %v, want ErrLineage or ErrClosed", err)
	}
	if err := <-ended; !errors.Is(err, store.ErrLineage) {
		t.Errorf("Follow of the content before ends with %v, want ErrLineage", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

func TestApplyEncoded(t *testing.T) { storetest.RunEncoded(t, mem.New()) }
