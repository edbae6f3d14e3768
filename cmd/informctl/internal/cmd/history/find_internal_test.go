package history

import (
	"testing"
	"time"

	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/store"
)

type logged struct {
	store.Reader
	state store.LogState
}

func (l logged) History() (store.LogState, error) { return l.state, nil }

// TestAttemptsWithoutLog checks that a resource without a log, as one in memory that
// nobody has followed, leaves the number of attempts bounded.
func TestAttemptsWithoutLog(t *testing.T) {
	now := time.Now()
	historians := []*historian{
		{view: &source.View{Reader: logged{state: store.LogState{Begins: now.Add(-time.Hour), Last: store.Place{Mark: 9, Time: now}}}}},
		{view: &source.View{Reader: logged{}}},
	}
	if n := len((&options{tail: 1}).attempts(historians)); n > 7 {
		t.Errorf("%d attempts", n)
	}
}
