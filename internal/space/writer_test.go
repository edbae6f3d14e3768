package space_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/informctl/informctl/internal/bolttest"
	"github.com/informctl/informctl/internal/space"
)

// TestWriter checks that a copy stops before the volume is full.
func TestWriter(t *testing.T) {
	dir := bolttest.Volume(t, 8)
	f, err := os.Create(filepath.Join(dir, "copy"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	w := &space.Writer{Writer: f, Path: dir}
	n, err := io.Copy(w, io.LimitReader(zeros{}, 16<<20))
	if !errors.Is(err, space.ErrShort) || !errors.Is(w.Short, space.ErrShort) || n < 3<<20 || n > 4<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "other"), make([]byte, 3<<20), 0o600); err != nil {
		t.Errorf("others cannot write any more: %v", err)
	}
}

// zeros reads zeros without an end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
