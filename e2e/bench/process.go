package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// memory samples the resident memory of this process and keeps the maximum in bytes.
type memory struct {
	mu  sync.Mutex // protects max
	max usage
}

// usage is the resident memory in bytes: anonymous memory, and the total with the pages
// of files.
type usage struct{ anon, total int64 }

// sampleEvery is the time between two samples.
const sampleEvery = 20 * time.Millisecond

func watchMemory(ctx context.Context) *memory {
	m := &memory{}
	go func() {
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for {
			m.sample()
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return m
}

func (m *memory) sample() {
	now, err := readMemory()
	if err != nil {
		return // the reading at the end returns the error
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.max.anon, m.max.total = max(m.max.anon, now.anon), max(m.max.total, now.total)
}

func (m *memory) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.max = usage{}
}

func (m *memory) peak() (anon, total float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return float64(m.max.anon), float64(m.max.total)
}

func readMemory() (usage, error) {
	anon, err := procNumber("/proc/self/status", "RssAnon:")
	if err != nil {
		return usage{}, err
	}
	total, err := procNumber("/proc/self/status", "VmRSS:")
	return usage{anon << 10, total << 10}, err
}

// writtenBytes returns the number of bytes that this process has passed to write calls.
// The kernel's count of bytes sent to disks (write_bytes) includes a whole large folio if
// one of its pages was written: 20 pages of 4 KB counted as 32 MB.
func writtenBytes() (int64, error) { return procNumber("/proc/self/io", "wchar:") }

// diskBytes returns a number that changes whenever something was written to a file.
// writtenBytes also changes at other times, because the runtime wakes its threads with
// writes.
func diskBytes() (int64, error) { return procNumber("/proc/self/io", "write_bytes:") }

func procNumber(path, field string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, field); ok {
			return strconv.ParseInt(strings.Fields(value)[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, field)
}

// cpuSeconds returns the CPU time that this process has used.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// cpuSecondsOf returns the CPU time that another process has used, in steps of 10 ms.
func cpuSecondsOf(pid int) (float64, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("CPU time of the server: %w", err)
	}
	stat, err := process.Stat()
	if err != nil {
		return 0, fmt.Errorf("CPU time of the server: %w", err)
	}
	return stat.CPUTime(), nil
}

// lastTransaction returns the ID of the last transaction in a bbolt file, the greater of
// those in its two meta pages.
func lastTransaction(path string) (_ int64, err error) {
	const (
		magicAt, pageSizeAt, transactionAt, end = 16, 24, 64, 72
		magic                                   = 0xED0CDAED
	)
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var last uint64
	var at int64
	for range 2 {
		page := make([]byte, end)
		if _, err := f.ReadAt(page, at); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if binary.NativeEndian.Uint32(page[magicAt:]) != magic {
			return 0, fmt.Errorf("%s is no bbolt file", path)
		}
		last = max(last, binary.NativeEndian.Uint64(page[transactionAt:]))
		at += int64(binary.NativeEndian.Uint32(page[pageSizeAt:]))
	}
	return int64(last), nil
}

// copyFile copies a file and syncs it to disk, so that nothing of it is written during a
// measurement.
func copyFile(from, to string) (err error) {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, bytes.NewReader(content)); err != nil {
		return err
	}
	return f.Sync()
}
