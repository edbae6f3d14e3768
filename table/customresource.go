package table

import (
	"reflect"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"
)

// printerColumn is a column that a definition gives to its custom resources.
type printerColumn struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Format   string `json:"format"`
	JSONPath string `json:"jsonPath"`
	Priority int32  `json:"priority"`
}

// OfDefinition returns how the custom resources are printed that a
// CustomResourceDefinition of apiextensions.k8s.io/v1 defines, in one of its versions. It
// returns false if the definition cannot be read, or does not have the version.
func OfDefinition(crd *unstructured.Unstructured, version string) (Kind, bool) {
	d, err := as[customResourceDefinition](crd)
	if err != nil {
		return Kind{}, false
	}
	for _, v := range d.Spec.Versions {
		if v.Name == version {
			return ofColumns(v.Columns)
		}
	}
	return Kind{}, false
}

func ofColumns(columns []printerColumn) (Kind, bool) {
	if len(columns) == 0 {
		columns = []printerColumn{{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"}}
	}
	k := Kind{columns: always("Name")}
	for _, c := range columns {
		if _, err := c.path(); err != nil {
			return Kind{}, false
		}
		k.columns = append(k.columns, Column{c.Name, c.Type, c.Format, c.Priority})
	}
	k.cells = func(obj runtime.Object, now time.Time) ([]any, error) {
		u, err := as[unstructured.Unstructured](obj)
		if err != nil {
			return nil, err
		}
		cells := []any{u.GetName()}
		for _, c := range columns {
			cells = append(cells, c.cell(u.Object, now))
		}
		return cells, nil
	}
	return k, true
}

// path parses the column's path. A JSONPath must be used from one goroutine.
func (c printerColumn) path() (*jsonpath.JSONPath, error) {
	path := jsonpath.New(c.Name).AllowMissingKeys(true)
	return path, path.Parse("{" + c.JSONPath + "}")
}

// cell returns the first value at the path, nil if there is none of the column's type.
func (c printerColumn) cell(content map[string]any, now time.Time) any {
	path, err := c.path()
	if err != nil {
		return nil
	}
	found, err := path.FindResults(content)
	if err != nil || len(found) == 0 || len(found[0]) == 0 {
		return nil
	}
	value := found[0][0].Interface()
	switch c.Type {
	case "string":
		var text strings.Builder
		if path.PrintResults(&text, []reflect.Value{reflect.ValueOf(value)}) != nil {
			return nil
		}
		return text.String()
	case "date":
		return dateCell(value, now)
	}
	return plainCell(c.Type, value)
}

func dateCell(value any, now time.Time) any {
	text, ok := value.(string)
	if !ok {
		return nil
	}
	if text == "" {
		return unknown
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return "<invalid>"
	}
	return age(metav1.NewTime(t), now)
}

// plainCell returns a number or a bool if the value is one of the type.
func plainCell(of string, value any) any {
	switch v := value.(type) {
	case bool:
		if of == "boolean" {
			return v
		}
	case int64:
		switch of {
		case "integer":
			return v
		case "number":
			return float64(v)
		}
	case float64:
		switch of {
		case "integer":
			return int64(v)
		case "number":
			return v
		}
	}
	return nil
}
