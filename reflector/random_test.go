package reflector_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/informctl/informctl/internal/fakeapi"
)

// TestRandom changes a server at random. The name of the subtest is the seed; however,
// the backoffs of the reflector differ from run to run. In the end, the sink holds the
// content of the server, and a warm start has not listed if the server has kept its
// history.
func TestRandom(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &chaos{rand: rand.New(rand.NewPCG(seed, 0)), forgets: seed%2 == 1}
				stored := []string{"", "3"}[c.rand.IntN(2)]
				opts := fakeapi.Options{NoBookmarks: c.rand.IntN(4) == 0, NoWatchList: c.rand.IntN(2) == 0}
				c.world = newWorld(t, stored, opts)
				c.opts.PageSize = int64(2 + c.rand.IntN(3))
				for range c.rand.IntN(10) {
					c.write()
				}
				c.start()
				for range 60 {
					c.step()
				}
				c.server.Slow(0)
				c.server.Up()
				// These lists consume the remaining errors of FailList.
				for range 100 {
					_, _ = c.server.ListWithContext(t.Context(), metav1.ListOptions{})
				}
				c.settle()
				c.pass(10 * time.Minute)
				c.settle()
				c.wantSame()
				if c.caughtUpAfter() < 0 {
					t.Error("never caught up")
				}
				lists := 0
				for _, r := range c.server.Requests() {
					isProbe := r.Options.LabelSelector != ""
					streamed := r.Options.SendInitialEvents != nil && !isProbe
					if r.Verb == "list" && r.Options.Limit > 1 && r.Options.Continue == "" || streamed && !opts.NoWatchList {
						lists++
					}
				}
				// Three in a row may happen by chance.
				most := c.Status().Reasons["watches from this resource version fail"]
				if opts.NoBookmarks {
					most++ // only a list shows that it has caught up
				}
				if stored != "" && !c.forgets && lists > most {
					t.Errorf("%d lists, of a server that had the whole history: %q", lists, c.newRequests())
				}
			})
		})
	}
}

type chaos struct {
	*world
	rand    *rand.Rand
	forgets bool // the server drops history
	names   int
}

func (c *chaos) write() {
	keys := []string{"a", "b"}
	for i := range c.names {
		keys = append(keys, fmt.Sprintf("c%d", i))
	}
	name := keys[c.rand.IntN(len(keys))]
	switch c.rand.IntN(5) {
	case 0:
		c.create(fmt.Sprintf("c%d", c.names))
		c.names++
	case 1:
		_, _ = c.server.Delete("default/" + name) // it may not exist
	case 2:
		c.server.Advance()
	default:
		_, _ = c.server.Update(configMap(name)) // it may not exist
	}
}

// settle waits until a watch is open long enough not to count as closed at once.
func (c *chaos) settle() {
	c.t.Helper()
	for range 3600 {
		c.pass(1100 * time.Millisecond)
		all := c.server.Requests()
		last := all[len(all)-1]
		if c.server.Watches() == 1 && last.Verb == "watch" && time.Since(last.Time) > time.Second {
			return
		}
	}
	c.t.Fatalf("no watch in %d requests", len(c.server.Requests()))
}

func (c *chaos) step() {
	switch c.rand.IntN(16) {
	case 0:
		c.settle()
		c.server.CloseWatches()
	case 1:
		c.settle()
		c.server.Down()
		c.pass(time.Duration(c.rand.IntN(120)) * time.Second)
		c.server.Up()
	case 2:
		c.server.Send(errorEvent(errors.New("etcd")))
	case 3:
		c.server.FailWatch(tooManyRequests(1), nil, fakeapi.InStream(errors.New("etcd")))
	case 4:
		c.server.FailList(forbidden(), errors.New("connection reset"))
	case 5:
		c.server.Slow(time.Duration(c.rand.IntN(3)) * 300 * time.Millisecond)
	case 6:
		if c.forgets {
			c.compact(c.server.RV())
		}
	case 7:
		if c.forgets {
			// A new history that grows past the held resource version before the next
			// probe looks the same as the old one.
			c.settle()
			// The resource version may not have existed yet.
			_ = c.server.Rewind([]string{"3", "4", "5"}[c.rand.IntN(3)])
			c.settle()
			c.pass(3 * time.Minute)
		}
	case 8:
		c.pass(time.Duration(c.rand.IntN(900)) * time.Second)
	default:
		c.write()
		c.pass(time.Duration(c.rand.IntN(1500)) * time.Millisecond)
	}
}
