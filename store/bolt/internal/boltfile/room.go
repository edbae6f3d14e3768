package boltfile

import (
	"math"
	"os"

	"github.com/informctl/informctl/internal/space"
)

// Room returns the size of the file, and how many bytes it can grow and has in half of
// its free pages, up to enough: what is on the volume and below Options.MaxBytes. The
// size is 0 if it is not known.
func (f *File) Room(enough func(size int64) int64) (size, room int64) {
	f.handleMu.RLock()
	defer f.handleMu.RUnlock()
	info, err := os.Stat(f.at())
	if err != nil || f.handle == nil {
		return 0, 0
	}
	room = math.MaxInt64
	if free, known := space.Free(f.at()); known {
		room = free
	}
	if f.opts.MaxBytes > 0 { // bbolt extends the file by AllocSize more than it needs
		room = min(room, max(int64(f.opts.MaxBytes-f.handle.AllocSize)-info.Size(), 0))
	}
	if room < enough(info.Size()) {
		stats := f.handle.Stats()
		// They are in pieces, and an object needs pages in a row.
		room += int64(stats.FreePageN+stats.PendingPageN) * int64(f.pageSize) / 2
	}
	return info.Size(), room
}
