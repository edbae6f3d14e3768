package source

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHolder checks that the process that has the lock of a file is found where the
// system says.
func TestHolder(t *testing.T) {
	if _, err := os.Stat("/proc/locks"); err != nil {
		t.Skip("the system does not say who has a lock")
	}
	path := filepath.Join(t.TempDir(), "file")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if pid := holderOf(path); pid != 0 {
		t.Errorf("a free file is held by %d", pid)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if pid := holderOf(path); pid != os.Getpid() {
		t.Errorf("the file is held by %d, want %d", pid, os.Getpid())
	}
	if is := holder(path); is != "another process" {
		t.Errorf("this process is called %q", is)
	}
}
