package informer_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
)

// gauges is a cache.InformerMetricsProvider that keeps the last value of each metric.
type gauges struct {
	mu     sync.Mutex
	values map[string][]float64
}

type gauge struct {
	of   *gauges
	name string
}

func (g gauge) Set(v float64) {
	g.of.mu.Lock()
	defer g.of.mu.Unlock()
	g.of.values[g.name] = append(g.of.values[g.name], v)
}

func (g gauge) Observe(v float64) { g.Set(v) }

func (g *gauges) NewQueuedItemMetric(cache.InformerNameAndResource) cache.GaugeMetric {
	return gauge{g, "queued"}
}

func (g *gauges) NewProcessingLatencyMetric(cache.InformerNameAndResource) cache.HistogramMetric {
	return gauge{g, "latency"}
}

func (g *gauges) NewStoreResourceVersionMetric(cache.InformerNameAndResource) cache.GaugeMetric {
	return gauge{g, "rv"}
}

func (g *gauges) last(name string) float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if all := g.values[name]; len(all) > 0 {
		return all[len(all)-1]
	}
	return -1
}

// TestMetrics checks that an informer with a name publishes through client-go's provider.
func TestMetrics(t *testing.T) {
	inBubble(t, func(w *world) {
		name, err := cache.NewInformerName("test-metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer name.Release()
		provider := &gauges{values: map[string][]float64{}}
		id := name.WithResource(corev1.SchemeGroupVersion.WithResource("configmaps"))
		w.put("a", "1")
		r := w.run(informer.Options{Identifier: id, MetricsProvider: provider}).sync()
		for i := range 2500 { // more than one batch
			w.put(fmt.Sprintf("o-%d", i), "1")
		}
		synctest.Wait()
		if rv := provider.last("rv"); rv != 2502 {
			t.Errorf("resource version %v, want 2502", rv)
		}
		if queued := provider.last("queued"); queued != 0 {
			t.Errorf("%v changes wait, want 0", queued)
		}
		if provider.last("latency") < 0 {
			t.Error("no latency was observed")
		}
		r.end()
	})
}
