package parallel_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/informctl/informctl/internal/parallel"
)

func TestEveryCallOnce(t *testing.T) {
	for name, do := range map[string]func(int, func(int) error) error{"Do": parallel.Do, "DoBeside": parallel.DoBeside} {
		for _, n := range []int{0, 1, 15, 16, 17, 1000} {
			calls := make([]atomic.Int32, n)
			err := do(n, func(i int) error { calls[i].Add(1); return nil })
			if err != nil {
				t.Fatal(err)
			}
			for i := range calls {
				if got := calls[i].Load(); got != 1 {
					t.Errorf("%s(%d) called %d %d times", name, n, i, got)
				}
			}
		}
	}
}

func TestError(t *testing.T) {
	want := errors.New("no")
	err := parallel.Do(1000, func(i int) error {
		if i == 500 {
			return want
		}
		return nil
	})
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}
