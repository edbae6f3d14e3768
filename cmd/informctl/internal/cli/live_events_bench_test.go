package cli_test

import (
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/inspect"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store/bolt"
)

// BenchmarkEvents measures how long a change takes from the server to a handler, at 100
// changes per second, while commands read from the same process one after the other. Each
// benchmark makes b.N changes; with -benchtime 2000x it takes 20 s.
func BenchmarkEvents(b *testing.B) {
	const pods, every = 10_000, 10 * time.Millisecond
	server := fakeapi.New(&corev1.Pod{}, &corev1.PodList{}, fakeapi.Options{})
	for i := range pods {
		if _, err := server.Create(testobjects.Pod(i, 1)); err != nil {
			b.Fatal(err)
		}
	}
	path := filepath.Join(b.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		b.Fatal(err)
	}
	inf, err := informer.New(server, &corev1.Pod{}, informer.Options{Backend: db, Indexes: []index.Index{index.Namespace()}})
	if err != nil {
		b.Fatal(err)
	}
	seen := make(chan time.Time, 1)
	if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(any, any) { seen <- time.Now() }}); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	wg.Go(func() { inf.RunWithContext(ctx) })
	wg.Go(func() { _ = inspect.Serve(ctx, inspect.SocketPath(path), inspect.NewHandler(inspect.Of(db, inf))) })
	defer func() {
		cancel()
		wg.Wait()
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	}()
	if !cache.WaitForCacheSync(b.Context().Done(), inf.HasSynced) {
		b.Fatal("not synced")
	}
	listens(b, path)
	n := 0
	for _, test := range []struct {
		name string
		args []string
	}{
		{"alone", nil},
		{"status", []string{"status"}},
		{"query", []string{"query", "pods", "-n", "ns-07"}},
		{"where", []string{"query", "pods", "--where", "object.spec.nodeName == 'x'", "--count"}},
		{"dump", []string{"dump", "pods", "-o", "json"}},
		{"alone again", nil},
	} {
		b.Run(test.name, func(b *testing.B) {
			reading, stop := context.WithCancel(b.Context())
			commands := 0
			var wg sync.WaitGroup
			if test.args != nil {
				wg.Go(func() {
					for reading.Err() == nil {
						cmd := exec.CommandContext(reading, "informctl", append(test.args, "--db", path)...)
						cmd.Stdout = io.Discard
						if err := cmd.Run(); err != nil && reading.Err() == nil {
							b.Error(err)
							return
						}
						commands++
					}
				})
			}
			var took []time.Duration
			for tick := time.NewTicker(every); b.Loop(); <-tick.C {
				n++
				pod := testobjects.Pod(n%pods, 1)
				pod.Annotations = map[string]string{"n": time.Duration(n).String()}
				began := time.Now()
				if _, err := server.Update(runtime.Object(pod)); err != nil {
					b.Fatal(err)
				}
				took = append(took, (<-seen).Sub(began))
			}
			stop()
			wg.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "median-us")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
			b.ReportMetric(float64(commands), "commands")
		})
	}
}
