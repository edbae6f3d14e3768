package printer

import (
	"io"
	"slices"

	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/internal/parallel"
)

// Print renders the items in chunks, so that memory does not grow with their number.
func Print(w io.Writer, items []source.Item, p Printer) error {
	if err := p.Begin(w); err != nil {
		return err
	}
	if p.Needs() == source.Nothing {
		for some := range slices.Chunk(items, source.ChunkSize) {
			if err := emit(w, p, source.Part{Items: some}); err != nil {
				return err
			}
		}
		return p.End(w)
	}
	for part, err := range source.InParts(items, p.Needs()) {
		if err == nil {
			err = emit(w, p, part)
		}
		if err != nil {
			return err
		}
	}
	return p.End(w)
}

// emit renders a part. It leaves out objects that were deleted in the meantime.
func emit(w io.Writer, p Printer, some source.Part) error {
	pieces := make([]Piece, len(some.Items))
	gone := make([]bool, len(some.Items))
	err := parallel.Do(len(some.Items), func(i int) (err error) {
		obj := Object{Item: some.Items[i]}
		if some.Objects != nil {
			if obj.Object, err = obj.Load(some.Objects[i]); err != nil {
				return err
			}
			if gone[i] = obj.Object == nil; gone[i] {
				return nil
			}
		}
		if pieces[i], err = p.Render(obj); err != nil {
			return obj.Wrap(err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	kept := pieces[:0]
	for i, piece := range pieces {
		if !gone[i] {
			kept = append(kept, piece)
		}
	}
	return p.Emit(w, kept)
}
