package objectdiff_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/informctl/informctl/cmd/informctl/internal/objectdiff"
)

// field returns a field with its values as JSON, "" for none.
func field(path, before, after string) objectdiff.ChangedField {
	f := objectdiff.ChangedField{Path: path}
	if before != "" {
		f.Old = json.RawMessage(before)
	}
	if after != "" {
		f.New = json.RawMessage(after)
	}
	return f
}

// TestCompose checks that two changes are composed to what a comparison of the first
// state with the last one would find.
func TestCompose(t *testing.T) {
	type fields = []objectdiff.ChangedField
	for name, c := range map[string]struct{ first, second, want fields }{
		"of others":       {fields{field("a", "1", "2")}, fields{field("b", "3", "4")}, fields{field("a", "1", "2"), field("b", "3", "4")}},
		"again":           {fields{field("a", "1", "2")}, fields{field("a", "2", "3")}, fields{field("a", "1", "3")}},
		"and back":        {fields{field("a", "1", "2"), field("b", "", "2")}, fields{field("a", "2", "1"), field("b", "2", "")}, fields{}},
		"a longer name":   {fields{field("a.b", "1", "2")}, fields{field("a.bc", "1", "2")}, fields{field("a.b", "1", "2"), field("a.bc", "1", "2")}},
		"inside of a new": {fields{field("a[x=1]", "", `{"b":1}`)}, fields{field("a[x=1].b", "1", "12345678901"), field("a[x=1].c", "", `"d"`)}, fields{field("a[x=1]", "", `{"b":12345678901,"c":"d"}`)}},
		"out of a new":    {fields{field("a", "", `{"b":1,"c":2}`)}, fields{field("a.c", "2", "")}, fields{field("a", "", `{"b":1}`)}},
		"then removed":    {fields{field("a.b", "1", "2"), field("a.c", "", "3")}, fields{field("a", `{"b":2,"c":3}`, "")}, fields{field("a", `{"b":1}`, "")}},
		"then replaced":   {fields{field("a.b", "1", "2")}, fields{field("a", `{"b":2}`, "5")}, fields{field("a", `{"b":1}`, "5")}},
		"in a list":       {fields{field("a", "", `[{"type":"x y","b":1}]`)}, fields{field(`a[type="x y"].b`, "1", "2")}, fields{field("a", "", `[{"b":2,"type":"x y"}]`)}},
		"one more, one less": {
			fields{field("a", "", `[{"type":"x"}]`)},
			fields{field("a[type=x]", `{"type":"x"}`, ""), field("a[type=y]", "", `{"type":"y"}`)},
			fields{field("a", "", `[{"type":"y"}]`)},
		},
		"in another order": {
			fields{field("a", "", `[{"ip":"a"},{"ip":"b"}]`)},
			fields{field("a[*]", `["ip=a","ip=b"]`, `["ip=b","ip=a"]`)},
			fields{field("a", "", `[{"ip":"b"},{"ip":"a"}]`)},
		},
		"in another order, then removed": {
			fields{field("a[*]", `["ip=a","ip=b"]`, `["ip=b","ip=a"]`)},
			fields{field("a", `[{"ip":"b"},{"ip":"a"}]`, "")},
			fields{field("a", `[{"ip":"a"},{"ip":"b"}]`, "")},
		},
		"in another order, without keys": {
			fields{field("a", "", `["x","x","y"]`)}, fields{field("a[*]", `["x","x","y"]`, `["x","y","x"]`)}, fields{field("a", "", `["x","y","x"]`)},
		},
		"in another order, and one more": {
			fields{field("a", "", `[{"ip":"a"},{"ip":"b"}]`)},
			fields{field("a[ip=c]", "", `{"ip":"c"}`), field("a[*]", `["ip=a","ip=b"]`, `["ip=b","ip=a"]`)},
			fields{field("a", "", `[{"ip":"b"},{"ip":"a"},{"ip":"c"}]`)},
		},
		"of a map":     {fields{field("a", "", `{"b.c":1}`)}, fields{field(`a["b.c"]`, "1", "2")}, fields{field("a", "", `{"b.c":2}`)}},
		"without keys": {fields{field("a", "", `[{"b":1}]`)}, fields{field("a[0].b", "1", "2")}, fields{field("a", "", `[{"b":1}]`)}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, objectdiff.Compose(c.first, c.second)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestPartOf checks which updates are of one part that is written again and again.
func TestPartOf(t *testing.T) {
	for name, c := range map[string]struct {
		resource string
		paths    []string
		want     string
	}{
		"nothing":            {"pods", nil, ""},
		"status":             {"pods", []string{"metadata.generation", "status.phase", "status.conditions[type=Ready].status"}, "status"},
		"a new generation":   {"pods", []string{"metadata.generation", "spec.replicas"}, ""},
		"a generation":       {"pods", []string{"metadata.generation"}, ""},
		"a label, too":       {"pods", []string{"metadata.labels.app", "status.phase"}, ""},
		"another name":       {"pods", []string{"statuses"}, ""},
		"an event":           {"events", []string{"count", "lastTimestamp"}, "count"},
		"a newer event":      {"events.events.k8s.io", []string{"deprecatedCount", "series.count"}, "count"},
		"a changed event":    {"events", []string{"count", "message"}, ""},
		"a count of another": {"pods", []string{"count"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var fields []objectdiff.ChangedField
			for _, path := range c.paths {
				fields = append(fields, field(path, "1", "2"))
			}
			if got := objectdiff.PartOf(c.resource, fields); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestIsNoise checks which fields change without a change of the object.
func TestIsNoise(t *testing.T) {
	const leases = "leases.coordination.k8s.io"
	for path, c := range map[string]struct {
		resource string
		want     bool
	}{
		"metadata.resourceVersion":                              {"pods", true},
		"metadata.managedFields[manager=a].time":                {"pods", true},
		"status.conditions[type=Ready].lastHeartbeatTime":       {"nodes", true},
		"status.conditions[0].lastProbeTime":                    {"pods", true},
		"status.conditions[type=Ready].lastTransitionTime":      {"nodes", false},
		"status.conditions[type=Ready]":                         {"nodes", false},
		"spec.conditions[type=Ready].lastHeartbeatTime":         {"nodes", false},
		"spec.renewTime":                                        {leases, true},
		"spec.acquireTime":                                      {leases, true},
		"spec.holderIdentity":                                   {leases, false},
		"metadata.annotations[\"metadata.resourceVersion\"]":    {"pods", false},
		"status.containerStatuses[name=a].state.lastProbeTimes": {"pods", false},
	} {
		if got := objectdiff.IsNoise(c.resource, path); got != c.want {
			t.Errorf("%s of %s: %t", path, c.resource, got)
		}
	}
	if objectdiff.IsNoise("widgets.example.com", "spec.renewTime") {
		t.Error("spec.renewTime is one of any resource")
	}
}
