package table

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Column is one column of a table.
type Column struct {
	Name string
	// Type and Format are the server's: the type is string, integer, number, boolean or
	// date, and the format of the object's name is "name". A cell need not be of its
	// column's type, as on the server.
	Type, Format string
	// Priority is 0 for the columns that are always shown. kubectl shows the others only
	// with -o wide.
	Priority int32
}

// Kind prints the objects of one kind.
type Kind struct {
	columns []Column
	cells   func(obj runtime.Object, now time.Time) ([]any, error)
}

// Of returns how objects of a kind are printed. It returns false for a kind that has no
// columns here but the name and the age.
func Of(kind schema.GroupVersionKind) (Kind, bool) {
	k, ok := kinds[kind]
	return k, ok
}

// Named returns the columns of all other kinds: the name and the age.
func Named() Kind { return named }

var named = Kind{
	columns: always("Name", "Age"),
	cells: func(obj runtime.Object, now time.Time) ([]any, error) {
		m, ok := obj.(metav1.ObjectMetaAccessor)
		if u, is := obj.(*unstructured.Unstructured); is {
			return []any{u.GetName(), age(u.GetCreationTimestamp(), now)}, nil
		}
		if !ok {
			return nil, fmt.Errorf("table: %T has no metadata", obj)
		}
		o := m.GetObjectMeta()
		return []any{o.GetName(), age(o.GetCreationTimestamp(), now)}, nil
	},
}

// Columns returns the columns in their order. The caller owns the slice.
func (k Kind) Columns() []Column { return slices.Clone(k.columns) }

// Cells returns the cells of an object, one for each column: strings, int64s, float64s,
// bools, or nil where a custom resource lacks a field. An IPAddress has, as on the
// server, one more, which is not printed. The object is the versioned type of the kind or
// unstructured. Ages are as of now.
func (k Kind) Cells(obj runtime.Object, now time.Time) ([]any, error) {
	return k.cells(obj, now)
}

// kindOf returns a Kind whose objects have the type T.
func kindOf[T any](cells func(obj *T, now time.Time) []any, columns ...[]Column) Kind {
	return Kind{
		columns: slices.Concat(columns...),
		cells: func(obj runtime.Object, now time.Time) ([]any, error) {
			typed, err := as[T](obj)
			if err != nil {
				return nil, err
			}
			return cells(typed, now), nil
		},
	}
}

// as returns an object as a T. The error does not quote the object.
func as[T any](obj runtime.Object) (*T, error) {
	if typed, ok := any(obj).(*T); ok {
		return typed, nil
	}
	typed := new(T)
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("table: the object is a %T and not a %T", obj, typed)
	}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed) != nil {
		return nil, fmt.Errorf("table: a field of the object does not fit into a %T", typed)
	}
	return typed, nil
}

// always returns columns that are always shown.
func always(names ...string) []Column { return columnsOf(0, names) }

// wide returns columns that are shown with -o wide.
func wide(names ...string) []Column { return columnsOf(1, names) }

func columnsOf(priority int32, names []string) []Column {
	columns := make([]Column, 0, len(names))
	for _, name := range names {
		c := Column{Name: name, Type: "string", Priority: priority}
		if name == "Name" {
			c.Format = "name"
		}
		columns = append(columns, c)
	}
	return columns
}

// ofType sets the type of columns, which is string otherwise.
func ofType(name string, columns []Column) []Column {
	for i := range columns {
		columns[i].Type = name
	}
	return columns
}

// ofFormat sets the format of columns, which only that of the name has otherwise.
func ofFormat(format string, columns []Column) []Column {
	for i := range columns {
		columns[i].Format = format
	}
	return columns
}
