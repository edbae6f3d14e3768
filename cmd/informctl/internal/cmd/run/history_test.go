package run

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/store"
)

func TestParseHistory(t *testing.T) {
	day := 24 * time.Hour
	for text, want := range map[string]history{
		"":          {},
		"off":       {each: store.History{Bytes: -1}},
		"24h":       {each: store.History{Age: day}},
		"7d":        {each: store.History{Age: 7 * day}},
		"24h,1GiB":  {each: store.History{Age: day, Bytes: math.MaxInt64}, all: 1 << 30},
		"30m,500Mi": {each: store.History{Age: 30 * time.Minute, Bytes: math.MaxInt64}, all: 500 << 20},
		"1h,2GB":    {each: store.History{Age: time.Hour, Bytes: math.MaxInt64}, all: 2e9},
		"pods=24h":  {of: []ofOne{{"pods", store.History{Age: day}}}},
		"off,po=1d": {each: store.History{Bytes: -1}, of: []ofOne{{"po", store.History{Age: day}}}},
		"1d,nodes=off,1GiB,po=1h": {
			each: store.History{Age: day, Bytes: math.MaxInt64}, all: 1 << 30,
			of: []ofOne{{"nodes", store.History{Bytes: -1}}, {"po", store.History{Age: time.Hour, Bytes: math.MaxInt64}}},
		},
	} {
		if got, err := parseHistory(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"1GiB", ",", "24h,", "24h,many", "24h,0", "24h,-1GiB", "24h,10", "-1h", "0s", "24h,1GiB,1", "on", "pods=", "=1h", "pods=many", "pods=1GiB", "pods=1h=2h"} {
		if got, err := parseHistory(text); err == nil {
			t.Errorf("%q is accepted as %+v", text, got)
		}
	}
}

// TestHistoryOf checks which scope has which history: that of its name, none if it
// changes all the time, and else that of all.
func TestHistoryOf(t *testing.T) {
	h, err := parseHistory("24h,po=1h,events=off")
	if err != nil {
		t.Fatal(err)
	}
	scope := func(resource, kind string) store.Scope {
		return store.Scope{Resource: resource, Kind: schema.GroupVersionKind{Version: "v1", Kind: kind}}
	}
	pods, nodes, events := scope("pods", "Pod"), scope("nodes", "Node"), scope("events", "Event")
	leases := scope("leases.coordination.k8s.io", "Lease")
	none := store.History{Bytes: -1}
	for _, c := range []struct {
		scope  store.Scope
		served bool
		want   store.History
	}{
		{pods, false, store.History{Age: time.Hour}},
		{nodes, false, store.History{Age: 24 * time.Hour}},
		{events, true, none},
		{leases, false, none},
		{leases, true, store.History{Age: 24 * time.Hour}},
	} {
		if got := h.ofScope(c.scope, c.served); got != c.want {
			t.Errorf("%s, served %t: %+v, want %+v", c.scope, c.served, got, c.want)
		}
	}
	for text, want := range map[string]string{
		"24h,po=1h,events=off":        "",
		"pod=1h,pods=2h":              "pods: another name means the same",
		"po=1h,pods.v1=2h":            "po: another name means the same",
		"widgets=1h":                  "widgets: no such resource is followed",
		"widgets=1h,po=1h,wheels=2h":  "widgets and wheels: no such resource is followed",
		"widgets.example.com=1h":      "widgets.example.com: no such resource is followed",
		"widgets.example.com=1h,po=1": "write RESOURCE=AGE",
	} {
		h, err := parseHistory(text)
		if err == nil {
			_, err = h.check([]store.Scope{pods, nodes, events})
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	h, err = parseHistory("events=1h,events.events.k8s.io=2h")
	newer := scope("events.events.k8s.io", "Event")
	newer.Kind.Group = "events.k8s.io"
	if _, checkErr := h.check([]store.Scope{events, newer}); err != nil || checkErr != nil {
		t.Error(err, checkErr)
	}
	if one, two := h.ofScope(events, false).Age, h.ofScope(newer, false).Age; one != time.Hour || two != 2*time.Hour {
		t.Errorf("events have %s, the newer ones %s", one, two)
	}
}
