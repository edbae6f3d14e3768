package selection

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/cmd/informctl/internal/source"
)

// fieldLabel is a field label of the API server whose value is not that of the path of
// its name: the first value of several paths, or zero for an object that has none.
type fieldLabel struct {
	paths []*path
	zero  string
}

// fieldLabels are the field labels of the server that are no mere paths, by resource. A
// bool or number that is absent in JSON is the zero value for the server.
var fieldLabels = map[string]map[string]fieldLabel{
	"events":                 {"source": labelOf("", "source.component", "reportingComponent")},
	"events.events.k8s.io":   {"source": labelOf("", "deprecatedSource.component", "reportingController")},
	"jobs.batch":             {"status.successful": labelOf("0", "status.succeeded")},
	"nodes":                  {"spec.unschedulable": labelOf("false", "spec.unschedulable")},
	"pods":                   {"spec.hostNetwork": labelOf("false", "spec.hostNetwork"), "spec.host": labelOf("", "spec.nodeName")},
	"replicasets.apps":       {"status.replicas": labelOf("0", "status.replicas")},
	"replicationcontrollers": {"status.replicas": labelOf("0", "status.replicas")},
}

func labelOf(zero string, paths ...string) fieldLabel {
	l := fieldLabel{zero: zero}
	for _, text := range paths {
		p, err := parsePath("--field-selector", text)
		if err != nil {
			panic(err) // a path above cannot be parsed
		}
		l.paths = append(l.paths, p)
	}
	return l
}

// label returns the field label of the server that a requirement is on, if the path is
// not enough.
func (r Requirement) label(resource string) (fieldLabel, bool) {
	l, ok := fieldLabels[resource][r.name()]
	return l, ok
}

// tops returns the top-level fields that the requirement reads of objects of any
// resource.
func (r Requirement) tops() []string {
	names := []string{r.top()}
	for resource := range fieldLabels {
		l, _ := r.label(resource)
		for _, p := range l.paths {
			names = append(names, p.top())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// valuesOf returns the values of an item's object as the server selects by them.
func (r Requirement) valuesOf(i source.Item, obj runtime.Object) []string {
	l, ok := r.label(i.View.Info.Scope.Resource)
	if !ok {
		return r.path.valuesOf(i, obj)
	}
	r.asked.Add(1)
	for _, p := range l.paths {
		if values, err := p.values(obj); err == nil && len(values) > 0 {
			r.having.Add(1)
			return values
		}
	}
	if l.zero == "" {
		return nil
	}
	r.having.Add(1)
	return []string{l.zero}
}
