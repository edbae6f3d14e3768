package show

import (
	"io"

	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/table"
)

// changeTable prints changes as rows of a table. The columns are known when the first
// object is. Objects of several resources have only name and age in common.
type changeTable struct {
	o           *Changes
	process     *source.Process
	oneResource bool
	w           io.Writer
	*printer.Table
}

func (*changeTable) Needs() source.Depth { return source.Record }

func (t *changeTable) Begin(w io.Writer) error {
	t.w = w
	return nil
}

func (t *changeTable) Render(o printer.Object) (printer.Piece, error) {
	if t.Table == nil {
		kind, err := t.columns(o)
		if err != nil {
			return printer.Piece{}, err
		}
		t.Table = t.o.Selection.Format.Table(kind, source.Record, printer.TableOptions{
			Namespaces: t.o.Selection.Filter.Namespace == "" && (o.Namespace != "" || !t.oneResource),
			Clusters:   t.o.clusters,
			Kinds:      !t.oneResource, Now: t.o.Selection.Env.Now,
		})
		if err := t.Table.Begin(t.w); err != nil {
			return printer.Piece{}, err
		}
	}
	return t.Table.Render(o)
}

func (t *changeTable) columns(o printer.Object) (table.Kind, error) {
	if !t.oneResource {
		return table.Named(), nil
	}
	scope := o.View.Info.Scope
	if scope.Form == store.Metadata {
		return table.Named(), nil
	}
	if scope.Kind.Kind == "" {
		scope.Kind = o.GetObjectKind().GroupVersionKind()
	}
	if kind, ok := table.Of(scope.Kind); ok {
		return kind, nil
	}
	db, err := source.OpenProcess(t.process.Ctx, t.process.Path, false)
	if err != nil {
		return table.Named(), nil //nolint:nilerr // the changes are worth more than their columns
	}
	defer func() { _ = db.Close() }()
	kind, ok, err := columnsOf(db, scope)
	if !ok {
		kind = table.Named()
	}
	return kind, err
}
