package publish

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/postgres"
	"github.com/informctl/informctl/store"
)

// TestUnpublished checks when a publisher of pods and nodes is ready.
func TestUnpublished(t *testing.T) {
	scope := func(resource, version, kind string) store.Scope {
		return store.Scope{Cluster: "c1", Resource: resource, Kind: schema.GroupVersionKind{Version: version, Kind: kind}}
	}
	pods, nodes := scope("pods", "v1", "Pod"), scope("nodes", "v1", "Node")
	status := func(s store.Scope, isHeld, complete bool) postgres.ScopeStatus {
		return postgres.ScopeStatus{Scope: s, Group: "c1", IsHeld: isHeld, Complete: complete}
	}
	selected := status(nodes, true, true)
	selected.Scope.LabelSelector = "app=x"
	elsewhere := status(nodes, true, true)
	elsewhere.Scope.Cluster, elsewhere.Group = "c2", "c2"
	ofOther := status(pods, true, true)
	ofOther.Group = "c1/other"
	failed := status(nodes, true, true)
	failed.Problem = "refused"
	for name, test := range map[string]struct {
		all          []postgres.ScopeStatus
		want         []string
		isPublishing bool
	}{
		"nothing is published":                               {nil, []string{"pods: not published yet", "nodes: not published yet"}, false},
		"both are published":                                 {[]postgres.ScopeStatus{status(pods, true, true), status(nodes, true, true)}, nil, false},
		"the first list of one":                              {[]postgres.ScopeStatus{status(pods, true, true), status(nodes, true, false)}, []string{"nodes: listing"}, false},
		"the holder does not have one":                       {[]postgres.ScopeStatus{status(pods, true, true)}, nil, false},
		"this one holds the lease, and cannot take one over": {[]postgres.ScopeStatus{status(pods, true, true)}, []string{"nodes: not published yet"}, true},
		"the holder has another version":                     {[]postgres.ScopeStatus{status(pods, true, true), status(nodes, false, true), status(scope("nodes", "v2", "Node"), true, true)}, nil, false},
		"the holder has a part of one":                       {[]postgres.ScopeStatus{status(pods, true, true), selected}, nil, false},
		"the holder cannot publish one":                      {[]postgres.ScopeStatus{status(pods, true, true), failed}, []string{"nodes: failed: refused"}, false},
		"nobody holds the lease":                             {[]postgres.ScopeStatus{status(pods, false, true), elsewhere}, []string{"pods: unheld", "nodes: not published yet"}, false},
		"another group of the cluster":                       {[]postgres.ScopeStatus{ofOther}, []string{"nodes: not published yet"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, unpublished([]store.Scope{pods, nodes}, "", test.all, test.isPublishing)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := unpublished([]store.Scope{pods, nodes}, "other", []postgres.ScopeStatus{ofOther}, false); got != nil {
		t.Errorf("of a publisher that waits for the one of its group, %q is missing", got)
	}
}

// TestUnwritten checks when a process that writes SQL is ready.
func TestUnwritten(t *testing.T) {
	nodes := postgres.Projection{Resource: "nodes", AsOf: time.Now()}
	for name, test := range map[string]struct {
		all    []postgres.Projection
		isHeld bool
		writes bool
		want   []string
	}{
		"nothing is published":    {nil, true, true, nil},
		"all is written":          {[]postgres.Projection{nodes}, true, true, nil},
		"one is new":              {[]postgres.Projection{nodes, {Resource: "pods"}}, true, true, []string{"pods: not written yet"}},
		"one is new, for another": {[]postgres.Projection{nodes, {Resource: "pods"}}, true, false, nil},
		"nobody writes":           {[]postgres.Projection{nodes}, false, false, []string{"nobody writes SQL yet"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, unwritten(test.all, test.isHeld, test.writes)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestAlerts checks that the alerts use metrics that there are, and the labels of these.
func TestAlerts(t *testing.T) {
	const file = "../../../../../deploy/publish/alerts.yaml"
	alerts, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	descs := make(chan *prometheus.Desc, 100)
	(&observed{}).Describe(descs)
	close(descs)
	var known strings.Builder
	for d := range descs {
		known.WriteString(d.String())
	}
	names := regexp.MustCompile(`informctl_[a-z_]+`).FindAllString(string(alerts), -1)
	for _, name := range names {
		if !strings.Contains(known.String(), `"`+name+`"`) {
			t.Errorf("there is no metric %s", name)
		}
	}
	by := regexp.MustCompile(`max by \(job, (.*?)\)`).FindAllStringSubmatch(string(alerts), -1)
	n := strings.Count(string(alerts), "- alert: ")
	for _, m := range by {
		if m[1] != strings.Join(labels, ", ") {
			t.Errorf("an alert is by %s, and the metrics have %q", m[1], labels)
		}
	}
	if n < 4 || len(by) != len(names) {
		t.Errorf("of %d alerts, %d of %d metrics are by what they have", n, len(by), len(names))
	}
}
