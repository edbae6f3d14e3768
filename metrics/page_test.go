package metrics_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/metrics"
)

var update = flag.Bool("update", false, "write docs/metrics.md anew")

const pageHead = `# Metrics

What package ` + "`metrics`" + ` tells Prometheus: ` + "`metrics.New`" + `, which ` + "`informctl run --metrics-bind-address`" + `
serves, and ` + "`metrics.NewConsumers`" + ` (` + "`informctl_consumer_…`" + `), which a program registers itself.
Those of ` + "`informctl publish`" + ` are in [postgres.md](postgres.md#probes-and-metrics). Written by
` + "`make docs`" + `; a test compares it with the collectors. ` + "`deploy/alerts.yaml`" + ` and
` + "`deploy/grafana-dashboard.json`" + ` use them, and [troubleshooting.md](troubleshooting.md)
says what to do when an alert fires.

` + "`scope`" + ` is the ID of a scope, which stays the same over restarts; ` + "`handler`" + ` is a Go type, of
which there may be several handlers; ` + "`file`" + ` is the path of a database. Counters begin at 0
with each process, and those of a file or of what is read of it when that is opened again.

` + "`namespace`" + ` is the one that is listed, empty for all. Scrape pods with ` + "`honor_labels: true`" + `
(` + "`honorLabels`" + ` of a ServiceMonitor): else Prometheus puts the pod's namespace there, and
this one into ` + "`exported_namespace`" + `.

| Metric | Type | Unit | Labels | What it is |
|---|---|---|---|---|
`

// consumer has a value for every metric.
type consumer struct{}

func (consumer) Status() durable.Status {
	return durable.Status{
		Name: "widgets", State: durable.Active, Term: 8, SharedError: "no rights", Waiting: 1, InWork: 2, Delayed: 3, Failed: 4, Unresolved: 5,
		Scopes: []durable.ScopeStatus{{ID: "1234", Missing: 6, Behind: 7, Everything: "there is no place"}},
	}
}

// TestConsumers checks the name and the value of every metric of consumers.
func TestConsumers(t *testing.T) {
	want := `
# HELP informctl_consumer_active 1 when the consumer works, 0 when it waits for its election or was deposed.
# TYPE informctl_consumer_active gauge
informctl_consumer_active{consumer="widgets"} 1
# HELP informctl_consumer_behind_commits Commits in the log that are after the consumer's place.
# TYPE informctl_consumer_behind_commits gauge
informctl_consumer_behind_commits{consumer="widgets",scope="1234"} 7
# HELP informctl_consumer_everything 1 when handlers have received every object since the start, 0 when they went on.
# TYPE informctl_consumer_everything gauge
informctl_consumer_everything{consumer="widgets",scope="1234"} 1
# HELP informctl_consumer_keys Keys that are left to do, by state; failed ones are counted where they are, too.
# TYPE informctl_consumer_keys gauge
informctl_consumer_keys{consumer="widgets",state="delayed"} 3
informctl_consumer_keys{consumer="widgets",state="failed"} 4
informctl_consumer_keys{consumer="widgets",state="in work"} 2
informctl_consumer_keys{consumer="widgets",state="unresolved"} 5
informctl_consumer_keys{consumer="widgets",state="waiting"} 1
# HELP informctl_consumer_missing_handlers Handlers that were there before; the place does not move without them.
# TYPE informctl_consumer_missing_handlers gauge
informctl_consumer_missing_handlers{consumer="widgets",scope="1234"} 6
# HELP informctl_consumer_shared_error 1 when what the consumer shares with a successor could not be read or written last, 0 when it could; missing if it shares nothing.
# TYPE informctl_consumer_shared_error gauge
informctl_consumer_shared_error{consumer="widgets"} 1
`
	if err := testutil.CollectAndCompare(metrics.NewConsumers(consumer{}), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// TestPage checks that docs/metrics.md contains every metric of the collector with its
// help text.
func TestPage(t *testing.T) {
	collectors := []prometheus.Collector{metrics.New(statuses{everything()}), metrics.NewConsumers(consumer{})}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectors...)
	gathered, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	places := map[string]int{} // index in gathered, by name
	for i, f := range gathered {
		places[f.GetName()] = i
	}
	described := make(chan *prometheus.Desc)
	go func() {
		defer close(described)
		for _, c := range collectors {
			c.Describe(described)
		}
	}()
	page := pageHead
	for d := range described {
		name := regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(d.String())[1]
		at, there := places[name]
		if !there {
			t.Errorf("%s is described, and there is none of an informer that has everything", name)
			continue
		}
		delete(places, name)
		f := gathered[at]
		if f.GetHelp() == "" {
			t.Errorf("%s has no help", name)
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		page += fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n",
			name, strings.ToLower(f.GetType().String()), unit(name, f.GetHelp()), strings.Join(labels, ", "), f.GetHelp())
	}
	for name := range places {
		t.Errorf("%s is not described", name)
	}
	path := filepath.Join("..", "docs", "metrics.md")
	if *update {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	has := strings.Split(string(b), "\n")
	for i, want := range strings.Split(page, "\n") {
		if i >= len(has) || has[i] != want {
			t.Fatalf("docs/metrics.md is not as make docs writes it; line %d should be\n%s", i+1, want)
		}
	}
}

// unit returns the unit that a metric's name and help imply.
func unit(name, help string) string {
	name = strings.TrimSuffix(name, "_total")
	switch {
	case strings.HasSuffix(name, "_timestamp_seconds"):
		return "seconds since 1970"
	case strings.HasSuffix(name, "_seconds"):
		return "seconds"
	case strings.HasSuffix(name, "_bytes"):
		return "bytes"
	case strings.HasSuffix(name, "_info"):
		return "1"
	case strings.HasPrefix(help, "1 when "):
		return "0 or 1"
	}
	return "number"
}
