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

	"github.com/informctl/informctl/metrics"
)

var update = flag.Bool("update", false, "write docs/metrics.md anew")

const pageHead = `# Metrics

What package ` + "`metrics`" + ` and ` + "`informctl run --metrics-bind-address`" + ` tell Prometheus. Written by
` + "`make docs`" + `; a test compares it with the collector. ` + "`deploy/alerts.yaml`" + ` and
` + "`deploy/grafana-dashboard.json`" + ` use them, and [troubleshooting.md](troubleshooting.md)
says what to do when an alert fires.

` + "`scope`" + ` is the ID of a scope, which stays the same over restarts; ` + "`handler`" + ` is a Go type, of
which there may be several handlers; ` + "`file`" + ` is the path of a database. Counters begin at 0
with each process, and those of a file or of what is read of it when that is opened again.

| Metric | Type | Unit | Labels | What it is |
|---|---|---|---|---|
`

// TestPage checks that docs/metrics.md contains every metric of the collector with its
// help text.
func TestPage(t *testing.T) {
	c := metrics.New(statuses{everything()})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
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
		c.Describe(described)
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
