package source

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/store"
)

// ScopeInfo is the JSON form of a scope. Its field names are stable.
type ScopeInfo struct {
	ID              string      `json:"id"`
	Cluster         string      `json:"cluster"`
	Resource        string      `json:"resource"`
	APIVersion      string      `json:"apiVersion"`
	Kind            string      `json:"kind"`
	Namespace       string      `json:"namespace"`
	LabelSelector   string      `json:"labelSelector"`
	FieldSelector   string      `json:"fieldSelector"`
	Form            string      `json:"form"`
	Complete        bool        `json:"complete"`
	Objects         int         `json:"objects"`
	Bytes           int64       `json:"bytes"` // of the encoded objects
	Codec           string      `json:"codec"`
	Transform       string      `json:"transformVersion,omitempty"`
	ResourceVersion string      `json:"resourceVersion"`
	Reason          string      `json:"reason"`         // why resourceVersion is empty
	Time            *time.Time  `json:"time,omitempty"` // when it was set
	AgeSeconds      *int64      `json:"ageSeconds,omitempty"`
	Indexes         []IndexInfo `json:"indexes"`
	Log             *LogInfo    `json:"log,omitempty"` // what is kept of the changes
}

// LogInfo is the JSON form of a scope's log.
type LogInfo struct {
	Entries int       `json:"entries"`
	Bytes   int64     `json:"bytes"`
	Begins  time.Time `json:"begins,omitzero"` // of the oldest change that is kept
	Dropped uint64    `json:"dropped"`
	// Unlogged are the changes that were left out.
	Unlogged uint64 `json:"unlogged"`
}

// IndexInfo is the JSON form of an index.
type IndexInfo struct {
	Name     string `json:"name"`
	Identity string `json:"identity"`
	Values   int    `json:"values"`
}

// DescribeScope returns the JSON form of a scope, whose age is that at now.
func DescribeScope(info store.Info, now time.Time) ScopeInfo {
	s := info.Scope
	out := ScopeInfo{
		ID: info.ID, Cluster: s.Cluster, Resource: s.Resource,
		APIVersion: s.Kind.GroupVersion().String(), Kind: s.Kind.Kind,
		Namespace: s.Namespace, LabelSelector: s.LabelSelector, FieldSelector: s.FieldSelector,
		Form: s.Form.String(), Complete: info.Complete, Objects: info.Objects, Bytes: info.Bytes, Codec: info.Codec,
		Transform:       info.TransformVersion,
		ResourceVersion: info.Checkpoint.RV, Reason: info.Checkpoint.Reason, Indexes: []IndexInfo{},
	}
	if set := info.Checkpoint.Time; !set.IsZero() {
		set = set.UTC().Truncate(time.Second)
		age := int64(max(0, now.Sub(set)).Seconds())
		out.Time, out.AgeSeconds = &set, &age
	}
	if log := info.Log; log.Entries > 0 || log.Unlogged > 0 {
		out.Log = &LogInfo{Entries: log.Entries, Bytes: log.Bytes, Dropped: log.Dropped, Unlogged: log.Unlogged}
		if log.Entries > 0 {
			out.Log.Begins = log.Begins.UTC().Truncate(time.Second)
		}
	}
	for _, idx := range info.Indexes {
		out.Indexes = append(out.Indexes, IndexInfo{idx.Name, idx.Identity, idx.Values})
	}
	return out
}

// Selectors returns the selectors for a person, "" if there are none.
func (s ScopeInfo) Selectors() string {
	var parts []string
	if s.LabelSelector != "" {
		parts = append(parts, "labels:"+s.LabelSelector)
	}
	if s.FieldSelector != "" {
		parts = append(parts, "fields:"+s.FieldSelector)
	}
	return strings.Join(parts, " ")
}

// Scope returns the described scope. It is an error if the description is not whole.
func (s ScopeInfo) Scope() (store.Scope, error) {
	gv, err := schema.ParseGroupVersion(s.APIVersion)
	if err != nil || s.Resource == "" {
		return store.Scope{}, errors.New("the header names no resource and version")
	}
	scope := store.Scope{
		Cluster: s.Cluster, Resource: s.Resource, Kind: gv.WithKind(s.Kind), Namespace: s.Namespace,
		LabelSelector: s.LabelSelector, FieldSelector: s.FieldSelector,
	}
	var known bool
	if scope.Form, known = ParseForm(s.Form); !known {
		return scope, fmt.Errorf("the header's form is %q; there are typed, unstructured, metadata", s.Form)
	}
	return scope, nil
}

// ParseForm returns the form that its String names.
func ParseForm(text string) (form store.Form, known bool) {
	for _, form := range []store.Form{store.Typed, store.Unstructured, store.Metadata} {
		if form.String() == text {
			return form, true
		}
	}
	return 0, false
}
