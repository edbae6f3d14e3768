package queue

// KeptDecoded is the number of notifications in a queue that keep their objects decoded.
// Those behind them are encoded, which takes a third of the memory, and are decoded
// shortly before they are delivered.
const KeptDecoded = 1024

// KeyBytes is the approximate memory of one key.
const KeyBytes = 70

// Limits bound the queues of a Hub, in bytes.
type Limits struct {
	First int   // in memory, before the rest is spilled
	Chunk int   // of one file
	Files int64 // of all files; above it, Hub.Room waits for the handlers
}

// DefaultLimits are the limits of a Hub that sets none. The first notifications, a chunk
// that is being cut, one that is being written and one that is being read take at most 24
// MiB of memory per handler.
var DefaultLimits = Limits{First: 4 << 20, Chunk: 4 << 20, Files: 1 << 30}

// Files counts the files of all queues of a Hub.
type Files struct {
	Bytes int64  // of spilled notifications, and of those that could not be written
	Kept  int64  // of chunks that are not written, because an object of them is decoded
	Freed func() // called when there are fewer
}

// Waiting returns the bytes that count against Limits.Files.
func (f *Files) Waiting() int64 { return f.Bytes + f.Kept }

// Queue is the queue of one handler, oldest notifications first: first in memory, then
// chunks, then last in memory.
type Queue struct {
	limits                *Limits
	files                 *Files
	first, last           []Notification
	firstBytes, lastBytes int
	chunks                []*Chunk
}

// New returns an empty queue. Its Hub's queues share limits and files.
func New(limits *Limits, files *Files) *Queue { return &Queue{limits: limits, files: files} }

// IsEmpty reports whether nothing is queued.
func (q *Queue) IsEmpty() bool { return len(q.first)+len(q.chunks)+len(q.last) == 0 }

// IsLong reports whether a new notification would have KeptDecoded others before it.
func (q *Queue) IsLong() bool { return len(q.first) >= KeptDecoded || len(q.chunks)+len(q.last) > 0 }

// Add appends a notification.
func (q *Queue) Add(n Notification) {
	if q.firstBytes < q.limits.First && len(q.chunks)+len(q.last) == 0 {
		q.first = append(q.first, n)
		q.firstBytes += n.Bytes()
		return
	}
	q.last = append(q.last, n)
	q.lastBytes += n.Bytes()
}

// Take removes and returns up to limit of the oldest notifications. If it returns none
// and the queue is not empty, call Load.
func (q *Queue) Take(limit int) []Notification {
	if len(q.first) == 0 && len(q.chunks) == 0 {
		q.first, q.firstBytes, q.last, q.lastBytes = q.last, q.lastBytes, nil, 0
	}
	n := min(limit, len(q.first))
	taken := q.first[:n:n]
	if q.first = q.first[n:]; len(q.first) == 0 {
		q.first = nil // releases the array
	}
	for _, n := range taken {
		q.firstBytes -= n.Bytes()
	}
	return taken
}

// Load makes the oldest notifications of the chunks available for Take. It reads their
// file in a function that it gives to unlocked, which calls that without the lock.
// loaded is false if they are still being written. The error says that the file cannot be
// read: the chunk stays, until Drop.
func (q *Queue) Load(unlocked func(read func())) (loaded bool, err error) {
	c := q.chunks[0]
	if c.writing {
		return false, nil
	}
	waiting := c.waiting
	if file, size, seal := c.file, c.size, c.seal; file != nil {
		unlocked(func() { waiting, err = readChunk(file, size, seal) })
		if c.dropped {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	c.close()
	q.chunks = q.chunks[1:]
	q.first, q.firstBytes = waiting, 0
	for _, n := range waiting {
		q.firstBytes += n.Bytes()
	}
	return true, nil
}

// Keys returns the keys of the notifications in the chunks and behind them, oldest first.
// ok is false while a chunk is being written.
func (q *Queue) Keys() (keys []Key, ok bool) {
	for _, c := range q.chunks {
		if c.writing {
			return nil, false
		}
		keys = append(keys, c.keys...)
	}
	for _, n := range q.last {
		keys = append(keys, keyOf(n))
	}
	return keys, true
}

// Drop removes all notifications.
func (q *Queue) Drop() {
	for _, c := range q.chunks {
		c.dropped = true
		c.close()
	}
	*q = Queue{limits: q.limits, files: q.files}
}

// Size returns the number of notifications, and their bytes in files and in memory.
func (q *Queue) Size() (n int, inFiles, inMemory int64) {
	n = len(q.first) + len(q.last)
	inMemory = int64(q.firstBytes + q.lastBytes)
	for _, c := range q.chunks {
		n += len(c.keys)
		if c.file == nil {
			inMemory += int64(c.bytes)
			continue
		}
		inFiles += c.size
		inMemory += int64(KeyBytes * len(c.keys))
	}
	return n, inFiles, inMemory
}

// Cut splits the last notifications into chunks if they are enough, and returns the
// chunks that the caller must write. Chunks with decoded objects, which were added before
// the queue was known to be long or come from a backend that encodes none, stay in memory
// and count in Files.Kept.
func (q *Queue) Cut() (written []*Chunk) {
	if q.lastBytes < q.limits.Chunk {
		return nil
	}
	begin, bytes, encoded := 0, 0, true
	for i, n := range q.last {
		bytes += n.Bytes()
		encoded = encoded && n.Old.Object == nil && n.New.Object == nil
		if bytes < q.limits.Chunk && i+1 < len(q.last) {
			continue
		}
		c := &Chunk{files: q.files, waiting: q.last[begin : i+1 : i+1], bytes: bytes, writing: encoded}
		for _, n := range c.waiting {
			c.keys = append(c.keys, keyOf(n))
		}
		q.chunks = append(q.chunks, c)
		if encoded {
			written = append(written, c)
		} else {
			c.kept = int64(c.bytes)
			q.files.Kept += c.kept
		}
		begin, bytes, encoded = i+1, 0, true
	}
	q.last, q.lastBytes = nil, 0
	return written
}
