package cluster

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"
)

// TestAwaitServer checks that each error is reported, and only the first one logged:
// client-go's handler of errors logs what is reported.
func TestAwaitServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged, reported := 0, 0
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), funcr.New(func(string, string) { logged++ }, funcr.Options{})))
		backoff := serverBackoff()
		for range 15 {
			if err := awaitServer(ctx, &backoff, errors.New("refused"), func(error) { reported++ }); err != nil {
				t.Fatal(err)
			}
		}
		if logged != 1 || reported != 15 {
			t.Errorf("%d lines, %d reports", logged, reported)
		}
		cancel()
		if err := awaitServer(ctx, &backoff, errors.New("refused"), func(error) { reported++ }); !errors.Is(err, context.Canceled) || reported != 15 {
			t.Errorf("after the end: error %v, %d reports", err, reported)
		}
	})
}
