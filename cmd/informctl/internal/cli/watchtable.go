package cli

import (
	"io"

	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/table"
)

// watchTable prints changes as rows of a table. The columns are known when the first
// object is. Objects of several resources have only name and age in common.
type watchTable struct {
	o           *changes
	live        *source.Process
	oneResource bool
	w           io.Writer
	*resourceTable
}

func (*watchTable) needs() source.Depth { return source.Record }

func (t *watchTable) begin(w io.Writer) error {
	t.w = w
	return nil
}

func (t *watchTable) render(o object) (piece, error) {
	if t.resourceTable == nil {
		kind, err := t.columns(o)
		if err != nil {
			return piece{}, err
		}
		t.resourceTable = t.o.selection.format.table(kind, source.Record, tableOptions{
			namespaces: t.o.selection.filter.namespace == "" && (o.Namespace != "" || !t.oneResource),
			kinds:      !t.oneResource, now: t.o.env.Now,
		})
		if err := t.resourceTable.begin(t.w); err != nil {
			return piece{}, err
		}
	}
	return t.resourceTable.render(o)
}

func (t *watchTable) columns(o object) (table.Kind, error) {
	if !t.oneResource {
		return table.Named(), nil
	}
	scope := o.View.Info.Scope
	if scope.Kind.Kind == "" {
		scope.Kind = o.GetObjectKind().GroupVersionKind()
	}
	if kind, ok := table.Of(scope.Kind); ok {
		return kind, nil
	}
	db, err := source.OpenProcess(t.live.Ctx, t.live.Path, false)
	if err != nil {
		return table.Kind{}, err
	}
	defer func() { _ = db.Close() }()
	kind, ok, err := columnsOf(db, scope)
	if !ok {
		kind = table.Named()
	}
	return kind, err
}
