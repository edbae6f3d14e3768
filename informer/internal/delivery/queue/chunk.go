package queue

import (
	"bytes"
	"crypto/cipher"
	"errors"
	"os"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/tempfile"
	"github.com/informctl/informctl/store"
)

// Chunk is a part of a queue. It is in memory until it is written to a file, and stays
// there if it cannot be written. The notifications in waiting do not change while they
// are written, so Write needs no lock.
type Chunk struct {
	files   *Files
	keys    []Key
	waiting []Notification // nil if it is in the file
	bytes   int            // bytes of waiting while it is in memory
	writing bool
	file    *os.File // already unlinked
	size    int64
	kept    int64       // what it counts in Files.Kept
	seal    cipher.AEAD // encrypts the file
	dropped bool        // the queue no longer has it
}

// spilled is a notification in a file.
type spilled struct {
	Kind     Kind
	Initial  bool
	Newer    bool
	Key      string
	OldKey   string
	NewKey   string
	Old, New []byte
}

// Written is a file that has been written for a chunk.
type Written struct {
	file *os.File
	size int64
	seal cipher.AEAD
}

// Write writes the chunk to an unnamed file of a directory; "" means the system's
// directory for temporary files. It encrypts the file, whatever the scope, with a key
// that lives as long as the chunk: the notifications may be of Secrets, and no damage
// goes unnoticed. The caller calls Replace with what it returns.
func (c *Chunk) Write(dir string) (w Written, err error) {
	list := make([]spilled, len(c.waiting))
	for i, n := range c.waiting {
		list[i] = spilled{n.Kind, n.Initial, n.Newer, n.Key, n.Old.Key, n.New.Key, n.Old.Raw, n.New.Raw}
	}
	seal := codec.NewKey().AEAD()
	var encoded bytes.Buffer
	encoded.Grow(c.bytes + seal.Overhead()) // c.bytes is more than what is written
	if err := msgpack.NewEncoder(&encoded).Encode(list); err != nil {
		return Written{}, err
	}
	b := seal.Seal(encoded.Bytes()[:0], nil, encoded.Bytes(), nil)
	file, err := tempfile.Unnamed(dir, "informctl-waiting-*")
	if err != nil {
		return Written{}, err
	}
	if _, err := file.Write(b); err != nil {
		return Written{}, errors.Join(err, file.Close())
	}
	return Written{file, int64(len(b)), seal}, nil
}

// Replace replaces the notifications in memory by the file that Write has written. If it
// could not be written, they stay.
func (c *Chunk) Replace(w Written, err error) {
	c.writing = false
	switch {
	case c.dropped:
		if err == nil {
			_ = w.file.Close()
		}
	case err != nil:
		c.size = int64(c.bytes)
		c.files.Bytes += c.size // it counts although it stays in memory
	default:
		c.waiting, c.file, c.size, c.seal = nil, w.file, w.size, w.seal
		c.files.Bytes += w.size
	}
}

func (c *Chunk) close() {
	if c.file != nil {
		_ = c.file.Close() // nothing to flush
	}
	if c.size+c.kept > 0 {
		c.files.Bytes -= c.size
		c.files.Kept -= c.kept
		c.file, c.size, c.kept, c.seal = nil, 0, 0, nil
		c.files.Freed()
	}
}

func readChunk(file *os.File, size int64, seal cipher.AEAD) ([]Notification, error) {
	b := make([]byte, size)
	if _, err := file.ReadAt(b, 0); err != nil {
		return nil, err
	}
	b, err := seal.Open(b[:0], nil, b, nil)
	if err != nil {
		return nil, err
	}
	var list []spilled
	if err := msgpack.Unmarshal(b, &list); err != nil {
		return nil, err
	}
	waiting := make([]Notification, len(list))
	for i, n := range list {
		waiting[i] = Notification{
			Kind: n.Kind, Initial: n.Initial, Newer: n.Newer, Key: n.Key,
			Old: store.Entry{Key: n.OldKey, Raw: n.Old}, New: store.Entry{Key: n.NewKey, Raw: n.New},
		}
	}
	return waiting, nil
}
