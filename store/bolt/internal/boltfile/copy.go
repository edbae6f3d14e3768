package boltfile

import (
	"errors"
	"io"
	"sync"

	bbolt "go.etcd.io/bbolt"
)

// ErrReopened indicates a copy that had to end because a write has failed: to open the
// file again, the writer and the readers behind it would have waited for the copy.
var ErrReopened = errors.New("a write has failed, and the file is opened again: copy it once more")

// CopyTo writes the file as of the last commit to w and returns the number of bytes
// written. It holds no lock while it waits for w that a failed write would wait for: the
// error is then ErrReopened.
func (f *File) CopyTo(w io.Writer) (n int64, err error) {
	out, in := io.Pipe()
	var reading sync.WaitGroup
	defer reading.Wait()
	defer func() { _ = out.Close() }()
	reading.Go(func() {
		_ = in.CloseWithError(f.View("copying", func(tx *bbolt.Tx) error {
			if !f.beginCopy(in) {
				return ErrReopened
			}
			defer f.endCopy(in)
			_, err := tx.WriteTo(in)
			return err
		}))
	})
	return io.Copy(w, out)
}

// beginCopy notes a copy, for lockAlone. It returns false if the file is about to be
// opened again.
func (f *File) beginCopy(in *io.PipeWriter) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.reopens {
		f.copies[in] = true
	}
	return !f.reopens
}

func (f *File) endCopy(in *io.PipeWriter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.copies, in)
}

// lockAlone locks handleMu for writing. Copies end then: they take as long as their
// readers like.
func (f *File) lockAlone() {
	f.mu.Lock()
	f.reopens = true
	for in := range f.copies {
		_ = in.CloseWithError(ErrReopened)
	}
	f.mu.Unlock()
	f.handleMu.Lock()
	f.mu.Lock()
	f.reopens = false
	f.mu.Unlock()
}
