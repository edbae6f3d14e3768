package boltfile

import (
	"errors"
	"io"
	"sync"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
)

// ErrReopened indicates a copy that had to end because a write has failed: to open the
// file again, the writer and the readers behind it would have waited for the copy.
var ErrReopened = errors.New("a write has failed, and the file is opened again: copy it once more")

// CopyTo writes the file as of the last commit to w and returns the number of bytes
// written. It holds no lock while it waits for w that a failed write would wait for: the
// error is then ErrReopened. EndCopies and Close end it with store.ErrClosed.
func (f *File) CopyTo(w io.Writer) (n int64, err error) {
	out, in := io.Pipe()
	var reading sync.WaitGroup
	defer reading.Wait()
	defer func() { _ = out.Close() }()
	reading.Go(func() {
		_ = in.CloseWithError(f.View("copying", func(tx *bbolt.Tx) error {
			if err := f.beginCopy(in); err != nil {
				return err
			}
			defer f.endCopy(in)
			_, err := tx.WriteTo(in)
			return err
		}))
	})
	return io.Copy(w, out)
}

// beginCopy notes a copy, for lockAlone. The error says why none may begin now.
func (f *File) beginCopy(in *io.PipeWriter) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ending || f.IsClosed() {
		return store.ErrClosed
	}
	if f.noCopy == nil {
		f.copies[in] = true
	}
	return f.noCopy
}

func (f *File) endCopy(in *io.PipeWriter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.copies, in)
}

// EndCopies ends the copies that go on, and lets none begin. A writer may wait for one of
// them, to map a longer file, and others for that writer.
func (f *File) EndCopies() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ending = true
	for in := range f.copies {
		_ = in.CloseWithError(store.ErrClosed)
	}
}

// lockAlone locks handleMu for writing. Copies end with cause then: they take as long as
// their readers like.
func (f *File) lockAlone(cause error) {
	f.mu.Lock()
	f.noCopy = cause
	for in := range f.copies {
		_ = in.CloseWithError(cause)
	}
	f.mu.Unlock()
	f.handleMu.Lock()
	f.mu.Lock()
	f.noCopy = nil
	f.mu.Unlock()
}
