package soak_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
)

// diskMegabytes is the size of the disk. It is many times larger than the informers need.
const diskMegabytes = 64

// disk contains the child's file. For root on Linux it is a tmpfs, which can be filled at
// any moment. Otherwise only a process that starts while the disk is full notices it,
// because its file may not grow.
type disk struct {
	dir     string
	mounted bool
	full    atomic.Bool
}

func newDisk(t *testing.T, dir string) *disk {
	t.Helper()
	d := &disk{dir: dir}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	size := fmt.Sprintf("size=%dm,mode=700", diskMegabytes)
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", size, "none", dir).CombinedOutput(); err != nil {
		t.Logf("SKIPPED: no tmpfs, so the disk is full only for a process that starts: %v: %s", err, out)
		return d
	}
	d.mounted = true
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("unmount the tmpfs: %v: %s", err, out)
		}
	})
	return d
}

func (d *disk) file() string { return filepath.Join(d.dir, "cache", "informers.db") }

func (d *disk) filler() string { return filepath.Join(d.dir, "filler") }

// fill fills the disk to the last byte.
func (d *disk) fill() error {
	d.full.Store(true)
	if !d.mounted {
		return nil
	}
	f, err := os.Create(d.filler())
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for block := make([]byte, 1<<20); len(block) > 0; {
		if _, err = f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("fill the disk: %w", err)
	}
	return nil
}

func (d *disk) free() error {
	d.full.Store(false)
	if err := os.Remove(d.filler()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// bound returns the maximal size in bytes of the file of a process that starts now, 0 if
// it is unlimited.
func (d *disk) bound() int64 {
	if d.mounted || !d.full.Load() {
		return 0
	}
	info, err := os.Stat(d.file())
	if err != nil {
		return 0
	}
	return info.Size()
}
