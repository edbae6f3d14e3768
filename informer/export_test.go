package informer

import "github.com/informctl/informctl/store"

// SetBacklogLimits sets what may wait for a handler in memory before the rest goes
// to files, how much goes to one, and how much to all.
func SetBacklogLimits(inf *Informer, first, chunk int, files int64) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	inf.limits = limits{first, chunk, files}
}

// InFiles returns what waits for handlers in files, in bytes.
func InFiles(inf *Informer) int64 {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	return inf.inFiles
}

// BreakFiles makes what waits in files unreadable.
func BreakFiles(inf *Informer) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	for h := range inf.handlers {
		for _, c := range h.waiting.chunks {
			if c.file != nil {
				_ = c.file.Truncate(c.size / 2)
			}
		}
	}
}

// LogSize returns how many changes an informer remembers, and how many bytes of keys
// and deleted objects; -1 where it remembers none.
func LogSize(inf *Informer) (entries, bytes int) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if inf.log == nil {
		return -1, -1
	}
	return len(inf.log.entries), inf.log.bytes
}

// BackendOf returns an informer's Options.Backend.
func BackendOf(inf *Informer) store.Backend { return inf.opts.Backend }
