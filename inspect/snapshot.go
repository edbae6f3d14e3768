package inspect

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/informctl/informctl/internal/space"
	"github.com/informctl/informctl/internal/tempfile"
)

// serveSnapshot copies the database to an unnamed file beside it and sends that file,
// because the transaction of the copy must not wait for a client. It refuses, and stops,
// if that would leave too little space on the volume: the writer must not run out of it.
func (e *endpoint) serveSnapshot(a *answer, q question) error {
	db, ok := e.source.Backend().(interface {
		Path() string
		CopyTo(w io.Writer) (int64, error)
	})
	if !ok {
		return refuse(http.StatusNotFound, "there is no file to copy: objects are held in memory")
	}
	release, err := q.slot(e.copying)
	if err != nil {
		return err
	}
	defer release()
	dir := filepath.Dir(db.Path())
	if info, err := os.Stat(db.Path()); err == nil {
		if err := space.Check(dir, info.Size()); err != nil {
			return refuse(http.StatusInsufficientStorage, "copy the database: %v", err)
		}
	}
	f, err := tempfile.Unnamed(dir, "informctl-snapshot-*")
	if err != nil {
		return fmt.Errorf("copy the database: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing to flush
	// Nothing is written to the client meanwhile: see answer.flush.
	_ = a.control.SetWriteDeadline(time.Time{})
	w := &space.Writer{Writer: &whileWanted{f, q.ctx}, Path: dir}
	size, err := db.CopyTo(w)
	if w.Short != nil { // bbolt does not wrap a writer's error
		return refuse(http.StatusInsufficientStorage, "copy the database: %v", w.Short)
	}
	if err != nil {
		return err
	}
	a.ends = time.Now().Add(copyTime)
	a.begin("application/octet-stream")
	a.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	_, err = io.Copy(onlyWriter{a}, io.NewSectionReader(f, 0, size))
	if err != nil {
		panic(http.ErrAbortHandler) // the client must see that the file is incomplete
	}
	return nil
}

// whileWanted is a writer that fails after its context has ended.
type whileWanted struct {
	io.Writer
	ctx context.Context
}

func (w *whileWanted) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.Writer.Write(b)
}

// onlyWriter hides all other methods of an answer, so that io.Copy calls Write for each
// part.
type onlyWriter struct{ io.Writer }
