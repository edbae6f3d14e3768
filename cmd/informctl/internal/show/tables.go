package show

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/cmd/informctl/internal/selection"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/table"
)

// printTables prints one table for each resource of the items, as kubectl does.
func printTables(w io.Writer, o *selection.Options, db *source.Database, items []source.Item, views []*source.View, kinds bool, now time.Time) error {
	for n, some := range byTable(items) {
		if n > 0 && !o.Format.NoHeaders {
			if _, err := io.WriteString(w, "\n"); err != nil {
				return err
			}
		}
		kind, d, err := columnsFor(db, some[0])
		if err != nil {
			return err
		}
		if d == source.Record {
			if some, err = decodingWhole(db, some); err != nil {
				return err
			}
		}
		namespaced := slices.ContainsFunc(some, func(i source.Item) bool { return i.Namespace != "" })
		options := printer.TableOptions{
			Namespaces: namespaced && o.Filter.Namespace == "",
			Clusters:   len(source.Clusters(source.InfosOf(views))) > 1,
			Kinds:      kinds, Now: func() time.Time { return now },
		}
		if err := printer.Print(w, some, o.Format.Table(kind, d, options)); err != nil {
			return err
		}
	}
	return nil
}

// decodingWhole returns the items with readers that decode whole objects. Conditions need
// parts of many objects, and a table all of a few.
func decodingWhole(d *source.Database, items []source.Item) ([]source.Item, error) {
	items = slices.Clone(items)
	views := map[*source.View]*source.View{}
	for n, i := range items {
		if views[i.View] == nil {
			r, err := d.OpenScope(i.View.Info, nil)
			if err != nil {
				return nil, fmt.Errorf("open %s: %w", i.View.Info.Scope, err)
			}
			v := *i.View
			v.Reader, views[i.View] = r, &v
		}
		items[n].View = views[i.View]
	}
	return items, nil
}

// byTable returns the items of each table. Their order stays the same within a table.
func byTable(items []source.Item) (tables [][]source.Item) {
	names := map[*source.View]string{}
	byName := map[string][]source.Item{}
	for _, i := range items {
		name, ok := names[i.View]
		if !ok {
			scope := i.View.Info.Scope
			name = fmt.Sprint(scope.Resource, " ", scope.Kind, scope.Form == store.Metadata)
			names[i.View] = name
		}
		byName[name] = append(byName[name], i)
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		tables = append(tables, byName[name])
	}
	return tables
}

// columnsFor returns the columns for the objects of an item's scope, and the part of an
// object that they need.
func columnsFor(d *source.Database, i source.Item) (table.Kind, source.Depth, error) {
	scope := i.View.Info.Scope
	if scope.Kind.Kind == "" && scope.Form == store.Unstructured {
		// The scope of a dynamic client has no kind, but its objects have.
		found, err := source.Fetch([]source.Item{i}, source.Record)
		if err != nil {
			return table.Kind{}, source.Nothing, err
		}
		obj, err := i.Load(found[0])
		if err != nil {
			return table.Kind{}, source.Nothing, i.Wrap(err)
		}
		if obj != nil {
			scope.Kind = obj.GetObjectKind().GroupVersionKind()
		}
	}
	kind, ok, err := columnsOf(d, scope)
	if !ok || i.View.LacksType() {
		return table.Named(), source.Header, err
	}
	return kind, source.Record, err
}

// columnsOf returns the columns of a scope's kind. It returns false if there are none but
// name and age.
func columnsOf(d *source.Database, scope store.Scope) (table.Kind, bool, error) {
	if scope.Form == store.Metadata {
		return table.Kind{}, false, nil
	}
	if kind, ok := table.Of(scope.Kind); ok {
		return kind, true, nil
	}
	if schema.ParseGroupResource(scope.Resource).Group == "" {
		return table.Kind{}, false, nil // a custom resource has a group
	}
	crd, err := d.Definition(scope)
	if err != nil || crd == nil {
		return table.Kind{}, false, err
	}
	kind, ok := table.OfDefinition(crd, scope.Kind.Version)
	return kind, ok, nil
}
