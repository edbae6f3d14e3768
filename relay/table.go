package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/table"
)

// columnsAge is how long the columns of a custom resource are those that its definition
// had.
const columnsAge = 5 * time.Second

// printer returns how the objects are printed: built-in kinds as the server has them, and
// custom resources as their definition says, if that is held.
func (s *served) printer() table.Kind {
	if kind, ok := table.Of(s.Scope.Kind); ok && s.Scope.Form != store.Metadata {
		return kind
	}
	if s.Scope.Form != store.Unstructured {
		return table.Named()
	}
	s.printed.mu.Lock()
	defer s.printed.mu.Unlock()
	if now := time.Now(); now.Sub(s.printed.at) > columnsAge {
		s.printed.at, s.printed.kind = now, table.Named()
		if crd := s.server.definition(s.Scope.Resource); crd != nil {
			if kind, ok := table.OfDefinition(crd, s.Scope.Kind.Version); ok {
				s.printed.kind = kind
			}
		}
	}
	return s.printed.kind
}

func columns(of table.Kind, options *metav1.TableOptions) []metav1.TableColumnDefinition {
	if options != nil && options.NoHeaders {
		return nil
	}
	var columns []metav1.TableColumnDefinition
	for _, c := range of.Columns() {
		columns = append(columns, metav1.TableColumnDefinition{Name: c.Name, Type: c.Type, Format: c.Format, Priority: c.Priority})
	}
	return columns
}

// appendRow appends the row of an item.
func (l *list) appendRow(b *bytes.Buffer, e store.Entry) error {
	o := &object{of: l.of, entry: e}
	row, err := l.of.row(o, l.target.printer)
	if err != nil {
		return err
	}
	switch l.target.table.IncludeObject {
	case metav1.IncludeObject:
	case metav1.IncludeNone:
		row.Object.Object = nil
	default:
		if row.Object.Object, err = o.metadata(l.target.kind.GroupVersion()); err != nil {
			return err
		}
	}
	return json.NewEncoder(b).Encode(row)
}

// row returns the row of an object, with the object.
func (s *served) row(o *object, printer table.Kind) (metav1.TableRow, error) {
	decoded, err := o.decoded()
	if err != nil {
		return metav1.TableRow{}, err
	}
	cells, err := printer.Cells(decoded, s.server.now())
	if err != nil {
		return metav1.TableRow{}, fmt.Errorf("object %q: %w", o.entry.Key, err)
	}
	return metav1.TableRow{Cells: cells, Conditions: rowConditions(decoded), Object: runtime.RawExtension{Object: decoded}}, nil
}

// rowConditions returns what the server says of the row of a pod that has ended.
func rowConditions(obj runtime.Object) []metav1.TableRowCondition {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil
	}
	completed := metav1.TableRowCondition{Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: string(pod.Status.Phase)}
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		completed.Message = "The pod has completed successfully."
	case corev1.PodFailed:
		completed.Message = "The pod failed."
	default:
		return nil
	}
	return []metav1.TableRowCondition{completed}
}

// ConvertToTable implements rest.TableConvertor, for one object and for what a watch
// sends. Lists write their rows themselves.
func (s *served) ConvertToTable(ctx context.Context, obj runtime.Object, options runtime.Object) (*metav1.Table, error) {
	o, _ := options.(*metav1.TableOptions)
	printer := targetOf(ctx).printer
	t := &metav1.Table{ColumnDefinitions: columns(printer, o)}
	var of *object
	switch obj := obj.(type) {
	case *object:
		of = obj
	case *shared:
		of = obj.object
	default: // a bookmark
		m, err := meta.Accessor(obj)
		if err != nil {
			return nil, err
		}
		t.ResourceVersion = m.GetResourceVersion()
		cells, err := printer.Cells(obj, s.server.now())
		if err != nil {
			return nil, err
		}
		t.Rows = []metav1.TableRow{{Cells: cells, Object: runtime.RawExtension{Object: obj}}}
		return t, nil
	}
	row, err := s.row(of, printer)
	if err != nil {
		return nil, err
	}
	t.ResourceVersion = of.GetObjectMeta().GetResourceVersion()
	t.Rows = []metav1.TableRow{row}
	return t, nil
}

// definitions is the resource of the definitions of custom resources.
const definitions = "customresourcedefinitions.apiextensions.k8s.io"

// definition returns the definition of a custom resource, as of the moment that is told;
// nil if it is not held.
func (s *Server) definition(resource string) *unstructured.Unstructured {
	crds := s.find(definitions)
	if crds == nil {
		return nil
	}
	entries, err := crds.Reader.Select(store.Query{Keys: []string{resource}, At: crds.At})
	if err != nil || len(entries) == 0 {
		return nil
	}
	obj, _ := crds.Reader.Decode(entries[0])
	crd, _ := obj.(*unstructured.Unstructured)
	return crd
}
