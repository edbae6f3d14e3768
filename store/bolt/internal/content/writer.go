// Package content writes and checks the content of a scope in the file: its headers, its
// objects and its stored indexes, and the tallies of them in the manifest.
package content

import (
	"bytes"
	"errors"
	"slices"

	"github.com/go-logr/logr"
	bbolt "go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/informctl/informctl/store/bolt/internal/dictionary"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/pack"
	"github.com/informctl/informctl/store/bolt/internal/pagefile"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// Options are what a Writer needs to know of the scope.
type Options struct {
	Packer *pack.Packer // has the dictionaries of new records
	Codec  byte         // of new records
	Logger logr.Logger
	// Corrupt returns the error of damage.
	Corrupt func(where string, err error) error
}

// Writer changes the content of one scope inside a transaction.
type Writer struct {
	Scope    *bbolt.Bucket
	Manifest *record.Manifest // End writes it

	opts             Options
	headers, objects *bbolt.Bucket
	lastDictionary   uint64 // the last one that is known to be in the file
	hasNew           bool   // a dictionary was written
	recounts         bool   // a damaged record was overwritten

	// ends has the last key that was put into each index; nil without Append
	ends map[string][]byte
}

// NewWriter returns a Writer of a scope's bucket. The errors are those of damage.
func NewWriter(id string, scope *bbolt.Bucket, o Options) (*Writer, error) {
	m, err := layout.ReadManifest(id, scope)
	if err != nil {
		return nil, o.Corrupt("scope "+id, err)
	}
	w := &Writer{Scope: scope, Manifest: m, opts: o, headers: scope.Bucket(layout.Headers), objects: scope.Bucket(layout.Objects)}
	if w.headers == nil || w.objects == nil {
		return nil, o.Corrupt("scope "+m.Scope().String(), errors.New("headers or objects are missing"))
	}
	return w, nil
}

// fillOfList is how full the pages of a first list are made. bbolt's default is half, for
// keys in random order.
const fillOfList = 0.95

// Append tells that new keys follow those that are there, as in a server's list.
func (w *Writer) Append() {
	w.headers.FillPercent, w.objects.FillPercent = fillOfList, fillOfList
	w.ends = map[string][]byte{}
}

// append makes the pages of an index full as long as each key follows the others, as
// those of namespaces do.
func (w *Writer) append(name string, index *bbolt.Bucket, key []byte) {
	last, known := w.ends[name]
	if !known {
		last, _ = index.Cursor().Last()
		w.ends[name], index.FillPercent = last, fillOfList
	}
	if bytes.Compare(key, last) <= 0 {
		index.FillPercent = bbolt.DefaultFillPercent
	}
	w.ends[name] = key
}

// Before is the stored state of a key before a Put, valid until the transaction ends.
type Before struct {
	Header  []byte         // nil: there was no object
	Record  []byte         // nil: there was none, or only damage has the header
	Head    *record.Header // of Header; nil if that is damaged
	Damaged bool           // Record is
}

// Before returns the stored state of a key. A damaged header is logged: its index entries
// stay, and the next Open finds that the index does not add up. Until then writes
// continue.
func (w *Writer) Before(key string) Before {
	b := Before{Header: w.headers.Get([]byte(key)), Record: w.objects.Get([]byte(key))}
	if b.Record != nil {
		_, err := record.Decode(key, b.Record)
		b.Damaged = err != nil
	}
	if b.Header == nil {
		return b
	}
	var err error
	if b.Head, err = record.DecodeHeader(key, b.Header); err != nil {
		w.opts.Logger.Error(w.opts.Corrupt("header "+key, err), "A damaged header is overwritten")
		b.Head = nil
	}
	return b
}

// Put writes an entry, packed as p, in the place of what was there before: record, header
// and index entries, and the tallies.
func (w *Writer) Put(e *overlay.Entry, p record.Packed, before Before) error {
	key := []byte(e.Key)
	if before.Header != nil {
		w.Manifest.Headers.Remove(record.Sum(before.Header))
	}
	if before.Record != nil {
		w.Manifest.Objects.Remove(record.Sum(before.Record))
		if w.recounts = w.recounts || before.Damaged; !before.Damaged {
			w.Manifest.Uses.Remove(before.Record)
		}
		w.Manifest.Bytes -= int64(len(before.Record))
	}
	stored := e.Stored(p)
	if err := w.index(e.Key, before.Head, stored); err != nil {
		return err
	}
	if stored == nil {
		return errors.Join(w.objects.Delete(key), w.headers.Delete(key))
	}
	head := stored.Encode(e.Key)
	if err := w.Use(p.Dictionary); err != nil {
		return err
	}
	rec := p.Record(w.opts.Codec).Encode(e.Key)
	w.Manifest.Headers.Add(record.Sum(head))
	w.Manifest.Objects.Add(record.Sum(rec))
	w.Manifest.Uses.Add(rec)
	w.Manifest.Bytes += int64(len(rec))
	if err := w.objects.Put(key, rec); err != nil {
		return err
	}
	return w.headers.Put(key, head)
}

// Use writes the dictionary of a record, if the file does not contain it.
func (w *Writer) Use(id uint64) error {
	if id == dictionary.None || id == w.lastDictionary {
		return nil
	}
	isNew, err := w.opts.Packer.Persist(w.Scope, w.Manifest, id)
	if w.hasNew = w.hasNew || isNew; err == nil {
		w.lastDictionary = id
	}
	return err
}

// End writes the manifest. It drops the dictionaries that nothing uses, if one was
// written, or if there are several and this is the first End since the scope was opened.
// What is damaged elsewhere is for those to report who need it, so that it ends no write.
func (w *Writer) End() error {
	if w.recounts {
		w.recount()
	}
	packer := w.opts.Packer
	if tidies := packer.IsUntidy(); tidies || w.hasNew {
		if err := pack.DropUnused(w.Scope, w.Manifest); err != nil {
			w.opts.Logger.Error(w.opts.Corrupt("scope "+w.Manifest.Scope().String(), err), "Dictionaries that may not be used any more are kept")
		}
		n := w.Manifest.Dictionaries.Count
		w.Scope.Tx().OnCommit(func() { packer.Tidied(n) })
	}
	return layout.WriteManifest(w.Scope, w.Manifest)
}

// recount counts the objects anew. Of a damaged record that was overwritten it is not
// known which dictionary it has used, nor which checksum was counted.
func (w *Writer) recount() {
	tally, uses := record.Tally{}, record.Uses{}
	err := pagefile.Guard(w.Scope.Tx().DB().Path(), "objects", func() error {
		return w.objects.ForEach(func(k, v []byte) error {
			tally.Add(record.Sum(v))
			if _, err := record.Decode(string(k), v); err == nil {
				uses.Add(v)
			}
			return nil
		})
	})
	// Otherwise the next Open finds what is missing.
	if err == nil && tally.Count == w.Manifest.Objects.Count {
		w.Manifest.Objects, w.Manifest.Uses = tally, uses
	}
}

// index replaces the index entries of one object. It writes nothing for a value that
// stays, as most do when an object changes: the pages of the index stay clean. The old
// header may name entries of an index that was rebuilt since; they do not exist any more
// and are skipped.
func (w *Writer) index(key string, old, now *record.Header) error {
	for name, state := range w.Manifest.Indexes {
		var was, is []string
		if old != nil {
			was = old.Index[name]
		}
		if now != nil {
			is = now.Index[name]
		}
		if len(was)+len(is) == 0 {
			continue
		}
		b, err := w.indexBucket(name)
		if err != nil {
			return err
		}
		for _, value := range was {
			if slices.Contains(is, value) {
				continue // it is written below, if it has to be
			}
			k, _ := record.IndexEntry(value, key)
			if b.Get(k) == nil {
				continue
			}
			state.Tally.Remove(record.Checksum(k))
			if err := b.Delete(k); err != nil {
				return err
			}
		}
		for _, value := range is {
			k, v := record.IndexEntry(value, key)
			held := b.Get(k)
			if held != nil && bytes.Equal(held, v) {
				continue
			}
			if w.ends != nil {
				w.append(name, b, k)
			}
			if held == nil {
				state.Tally.Add(record.Checksum(k))
			}
			if err := b.Put(k, v); err != nil {
				return err
			}
		}
		w.Manifest.Indexes[name] = state
	}
	return nil
}

func (w *Writer) indexBucket(name string) (*bbolt.Bucket, error) {
	root, err := w.Scope.CreateBucketIfNotExists(layout.Indexes)
	if err != nil {
		return nil, err
	}
	return root.CreateBucketIfNotExists([]byte(name))
}

// DropIndex drops the entries of an index.
func (w *Writer) DropIndex(name string) error {
	delete(w.Manifest.Indexes, name)
	root := w.Scope.Bucket(layout.Indexes)
	if root == nil {
		return nil
	}
	if err := root.DeleteBucket([]byte(name)); err != nil && !errors.Is(err, bbolterrors.ErrBucketNotFound) {
		return err
	}
	return nil
}
