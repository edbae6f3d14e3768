package source

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/informctl/informctl/inspect"
)

// TestSocketOfAnother checks that a socket that another user has made beside a file is
// not asked: its answer could be anything.
func TestSocketOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("DID NOT RUN: only root can give a socket to another user")
	}
	path := filepath.Join(t.TempDir(), "x.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", inspect.SocketPath(path))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	const nobody = 65534
	if err := os.Chown(inspect.SocketPath(path), nobody, nobody); err != nil {
		t.Fatal(err)
	}
	_, err = AskStatus(t.Context(), path)
	if err == nil || errors.Is(err, ErrNobody) || !strings.Contains(err.Error(), "belongs neither to this user") {
		t.Errorf("asked: %v", err)
	}
	if err := os.Chown(path, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	if err := checkOwner(inspect.SocketPath(path), path); err != nil {
		t.Errorf("the socket of the owner of the file: %v", err)
	}
}

// TestNewFileHasOneName checks that the temporary name is gone when the new one is on the
// disk: a file with two names is not used.
func TestNewFileHasOneName(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "new.db")
	if err := NewFile(path, func(temporary string) error { return os.WriteFile(temporary, []byte("x"), 0o600) }); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "new.db" {
		t.Errorf("%v %v", left, err)
	}
}
