package metrics_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/yaml"

	"github.com/informctl/informctl/metrics"
)

var metricName = regexp.MustCompile(`informctl_\w+`)

// exported returns the labels of each metric, by the names of its series.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics.New(statuses{everything()}), metrics.NewConsumers(consumer{}))
	gathered, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, f := range gathered {
		labels := []string{"job", "instance"} // Prometheus adds these
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
			all[f.GetName()+suffix] = labels
		}
	}
	return all
}

// TestDeployedNamesExist checks that the metrics in the dashboard and the alerts exist.
func TestDeployedNamesExist(t *testing.T) {
	names := exported(t)
	for _, file := range []string{"grafana-dashboard.json", "alerts.yaml"} {
		used := metricName.FindAllString(read(t, file), -1)
		for _, name := range used {
			if names[name] == nil {
				t.Errorf("%s: there is no metric %s", file, name)
			}
		}
		if len(used) < 5 {
			t.Errorf("%s uses %q only", file, used)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "deploy", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// hasToUse is what an expression needs to see all that its alert is about.
var hasToUse = map[string][]string{
	// the only metric of a process that has not found what it lists
	"InformerNotCaughtUp": {"informctl_informers", "unless on (job, instance) informctl_caught_up"},
	// An object that cannot be stored holds up the resource version, and not these.
	"InformerStale": {"informctl_last_event_timestamp_seconds", "informctl_last_bookmark_timestamp_seconds", "informctl_errors_total"},
	// Damage that is found while a file is opened is in the first sample.
	"InformerFileDamaged": {"unless informctl_file_rebuilds_total offset 1h"},
}

// TestAlerts checks that rules are complete, have unique names and balanced brackets, use
// labels that their metrics have, and tell replicas apart.
func TestAlerts(t *testing.T) {
	all := exported(t)
	label := regexp.MustCompile(`\$labels\.(\w+)|[{,](\w+)[=!]|\b(?:by|without|on|ignoring) \(([\w, ]+)\)`)
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, "alerts.yaml")), &rules); err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || slices.Contains(seen, r.Alert) || !isBalanced(r.Expr) ||
				r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("alert %q: %+v", r.Alert, r)
			}
			var known []string
			for _, name := range metricName.FindAllString(r.Expr, -1) {
				known = append(known, all[name]...)
			}
			text := r.Expr + r.Annotations["summary"] + r.Annotations["description"]
			for _, m := range label.FindAllStringSubmatch(text, -1) {
				for name := range strings.SplitSeq(m[1]+m[2]+m[3], ", ") {
					if !slices.Contains(known, name) {
						t.Errorf("alert %q uses the label %q, which its metrics do not have", r.Alert, name)
					}
				}
			}
			if strings.Contains(r.Expr, "by (") {
				t.Errorf("alert %q adds up what it does not name, as replicas: %s", r.Alert, r.Expr)
			}
			for _, part := range hasToUse[r.Alert] {
				if !strings.Contains(r.Expr, part) {
					t.Errorf("alert %q does not use %s: %s", r.Alert, part, r.Expr)
				}
			}
			seen = append(seen, r.Alert)
		}
	}
	if len(seen) == 0 {
		t.Error("no alerts")
	}
}

// TestPrometheusRule checks that the PrometheusRule has the rules of alerts.yaml.
func TestPrometheusRule(t *testing.T) {
	documents := strings.Split(read(t, "monitoring/monitoring.yaml"), "\n---\n")
	var rule struct{ Spec any }
	var alerts any
	if err := yaml.Unmarshal([]byte(documents[len(documents)-1]), &rule); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(read(t, "alerts.yaml")), &alerts); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(alerts, rule.Spec) || alerts == nil {
		t.Error("the PrometheusRule of deploy/monitoring has other rules than alerts.yaml")
	}
}

// TestServiceMonitor checks that the label namespace of the metrics is not the pod's.
func TestServiceMonitor(t *testing.T) {
	var monitor struct {
		Kind string
		Spec struct {
			Endpoints []struct{ HonorLabels bool }
		}
	}
	for document := range strings.SplitSeq(read(t, "monitoring/monitoring.yaml"), "\n---\n") {
		if err := yaml.Unmarshal([]byte(document), &monitor); err != nil {
			t.Fatal(err)
		}
		if monitor.Kind == "ServiceMonitor" {
			break
		}
	}
	if e := monitor.Spec.Endpoints; len(e) != 1 || !e[0].HonorLabels {
		t.Errorf("the ServiceMonitor has the endpoints %+v, want one with honorLabels", e)
	}
}

// TestRunbook checks that docs/troubleshooting.md describes exactly the existing alerts.
func TestRunbook(t *testing.T) {
	alerts := sorted(regexp.MustCompile(`(?m)^ +- alert: (\w+)$`), read(t, "alerts.yaml"))
	rows := sorted(regexp.MustCompile("(?m)^\\| `(Informer\\w+)` \\| [^|]+ \\| [^|]+ \\|$"), read(t, "../docs/troubleshooting.md"))
	if !slices.Equal(alerts, rows) || len(alerts) == 0 {
		t.Errorf("there are the alerts\n%q, and docs/troubleshooting.md has\n%q", alerts, rows)
	}
}

// sorted returns the sorted matches of the first group of a pattern.
func sorted(pattern *regexp.Regexp, text string) (found []string) {
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	slices.Sort(found)
	return found
}

// TestDashboard checks that panels have queries and unique IDs.
func TestDashboard(t *testing.T) {
	var dashboard struct {
		Title  string
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "grafana-dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range dashboard.Panels {
		if p.Title == "" || seen[p.ID] || len(p.Targets) == 0 {
			t.Errorf("panel %d %q has %d queries", p.ID, p.Title, len(p.Targets))
		}
		for _, q := range p.Targets {
			if !isBalanced(q.Expr) {
				t.Errorf("panel %q: %s", p.Title, q.Expr)
			}
		}
		seen[p.ID] = true
	}
	if len(seen) == 0 {
		t.Error("no panels")
	}
}

// isBalanced reports whether an expression is not empty and its brackets match.
func isBalanced(expr string) bool {
	var open []rune
	pairs := map[rune]rune{')': '(', ']': '[', '}': '{'}
	for _, c := range expr {
		switch c {
		case '(', '[', '{':
			open = append(open, c)
		case ')', ']', '}':
			if len(open) == 0 || open[len(open)-1] != pairs[c] {
				return false
			}
			open = open[:len(open)-1]
		}
	}
	return expr != "" && len(open) == 0
}
