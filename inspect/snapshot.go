package inspect

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"github.com/informctl/informctl/internal/tempfile"
)

// serveSnapshot copies the database to an unnamed file beside it and sends that file,
// because the transaction of the copy must not wait for a client.
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
	f, err := tempfile.Unnamed(filepath.Dir(db.Path()), "informctl-snapshot-*")
	if err != nil {
		return fmt.Errorf("copy the database: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing to flush
	size, err := db.CopyTo(&whileWanted{f, q.ctx})
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
