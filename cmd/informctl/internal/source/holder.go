package source

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// holder says who holds a file: another process, with its ID where that is known.
func holder(path string) string {
	if pid := holderOf(path); pid > 0 && pid != os.Getpid() {
		return fmt.Sprintf("another process (%d)", pid)
	}
	return "another process"
}

// holderOf returns the ID of a process that has the lock of a file, 0 if it is not known:
// only Linux says, unless it is a process of another container.
func holderOf(path string) int {
	locks, err := os.ReadFile("/proc/locks")
	var file unix.Stat_t
	if err != nil || unix.Stat(path, &file) != nil {
		return 0
	}
	device := uint64(file.Dev)
	id := fmt.Sprintf("%02x:%02x:%d", unix.Major(device), unix.Minor(device), file.Ino)
	for line := range strings.Lines(string(locks)) {
		// As "1: FLOCK ADVISORY WRITE PID DEVICE:INODE 0 EOF"; one that waits has "->".
		if fields := strings.Fields(line); len(fields) > 5 && fields[1] == "FLOCK" && fields[5] == id {
			pid, err := strconv.Atoi(fields[4])
			if err != nil {
				return 0
			}
			return max(pid, 0)
		}
	}
	return 0
}
