package source

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestNewFileWithoutLinks makes a file on a file system that has no hard links.
func TestNewFileWithoutLinks(t *testing.T) {
	defer func(before func(string, string) error) { link = before }(link)
	for name, cause := range map[string]error{"refused": syscall.EPERM, "not supported": syscall.EOPNOTSUPP} {
		link = func(old, name string) error { return &os.LinkError{Op: "link", Old: old, New: name, Err: cause} }
		path := filepath.Join(t.TempDir(), "new.db")
		fill := func(temporary string) error { return os.WriteFile(temporary, []byte("content"), 0o600) }
		if err := NewFile(path, fill); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != "content" {
			t.Errorf("%s: the file has %q, %v", name, b, err)
		}
		if err := NewFile(path, fill); err == nil || !strings.Contains(err.Error(), "exists already") {
			t.Errorf("%s: a file that is there: %v", name, err)
		}
		if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
			t.Errorf("%s: %v is left, %v", name, left, err)
		}
	}
}
