package cli

import (
	"io"
	"slices"

	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/internal/parallel"
)

// print renders the items in chunks, so that memory does not grow with their number.
func print(w io.Writer, items []source.Item, p printer) error {
	if err := p.begin(w); err != nil {
		return err
	}
	if p.needs() == source.Nothing {
		for some := range slices.Chunk(items, source.ChunkSize) {
			if err := emit(w, p, source.Part{Items: some}); err != nil {
				return err
			}
		}
		return p.end(w)
	}
	for part, err := range source.InParts(items, p.needs()) {
		if err == nil {
			err = emit(w, p, part)
		}
		if err != nil {
			return err
		}
	}
	return p.end(w)
}

// emit renders a part. It leaves out objects that were deleted in the meantime.
func emit(w io.Writer, p printer, some source.Part) error {
	pieces := make([]piece, len(some.Items))
	gone := make([]bool, len(some.Items))
	err := parallel.Do(len(some.Items), func(i int) (err error) {
		obj := object{Item: some.Items[i]}
		if some.Objects != nil {
			if obj.Object, err = obj.Load(some.Objects[i]); err != nil {
				return err
			}
			if gone[i] = obj.Object == nil; gone[i] {
				return nil
			}
		}
		if pieces[i], err = p.render(obj); err != nil {
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
	return p.emit(w, kept)
}
