package inspect

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/secret"
	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
)

// held is a readable scope: an informer's, or one that is only in the file.
type held struct {
	scope store.Scope
	store store.Reader
	inf   *informer.Informer // nil if the scope is only in the file
}

// held returns the scope that a request names. If its informer has not opened the scope
// yet, it returns the scope as stored in the file, or informer.ErrNotOpened.
func (e *endpoint) held(q question) (held, error) {
	rv, err := q.notOlderThan()
	if err != nil {
		return held{}, err
	}
	inf, err := e.find(q)
	if err == nil {
		if err := q.await(inf); err != nil {
			return held{}, err
		}
	}
	if err == nil && inf.Opened() {
		return held{inf.Scope(), inf.Reader(), inf}, nil
	}
	id := q.Get("scope")
	if err == nil {
		id = inf.Scope().ID()
	}
	if viewer, ok := e.source.Backend().(store.Viewer); ok && id != "" {
		s, scope, viewErr := viewer.View(id)
		if viewErr == nil {
			if is := s.Checkpoint().RV; rv != "" && !isUpTo(rv, is) {
				return held{}, tooOld(rv, is) // nothing follows it
			}
			return held{scope, s, nil}, nil
		}
		if !errors.Is(viewErr, store.ErrNotFound) {
			return held{}, viewErr
		}
	}
	if err == nil {
		err = informer.ErrNotOpened
	}
	return held{}, err
}

// heldAndShown is like held, and reports whether the request asks for the values of
// Secrets.
func (e *endpoint) heldAndShown(q question) (h held, show bool, err error) {
	if h, err = e.held(q); err == nil {
		show, err = q.showsSecrets()
	}
	return h, show, err
}

// serveFile describes the file, including scopes that no informer holds.
func (e *endpoint) serveFile(a *answer, q question) error {
	db, ok := e.source.Backend().(interface {
		store.Backend
		Path() string
	})
	if !ok {
		return refuse(http.StatusNotFound, "there is no file: objects are held in memory")
	}
	file := wire.File{Path: db.Path()}
	if info, err := os.Stat(db.Path()); err == nil {
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			file.Device, file.Inode = uint64(stat.Dev), stat.Ino //nolint:unconvert // Dev is an int32 on macOS
		}
	}
	if ledger, ok := db.(store.Ledger); ok {
		// Damage is reported by what is read.
		values, _ := ledger.Ledger(q.ctx, wire.ServerLedger)
		file.Server = string(values[wire.ServerVersion])
	}
	// A suspended file is not used.
	if f, ok := db.(interface{ Suspended() error }); !ok || f.Suspended() == nil {
		var err error
		if file.Scopes, err = db.Scopes(); err != nil {
			return err
		}
	}
	persisted := map[string]bool{} // by ID: find prefers these informers
	for _, inf := range e.source.Informers() {
		if inf.Persisted() {
			persisted[inf.Scope().ID()] = true
			file.Scopes = ahead(inf.Info(), file.Scopes)
		}
	}
	for _, inf := range e.source.Informers() {
		if inf.Opened() && !persisted[inf.Scope().ID()] {
			file.Memory = append(file.Memory, inf.Info())
		}
	}
	return a.document(file)
}

// ahead replaces the last commit's description of a scope by the informer's present one,
// which is ahead of the file by up to a commit interval.
func ahead(now store.Info, scopes []store.Info) []store.Info {
	i := slices.IndexFunc(scopes, func(info store.Info) bool { return info.ID == now.ID })
	if i < 0 {
		return append(scopes, now)
	}
	info := &scopes[i]
	info.Objects, info.Checkpoint = now.Objects, now.Checkpoint
	info.Complete = info.Complete || now.Complete
	for _, idx := range now.Indexes {
		if !slices.ContainsFunc(info.Indexes, func(has store.IndexInfo) bool { return has.Name == idx.Name }) {
			info.Indexes = append(info.Indexes, idx)
		}
	}
	return scopes
}

const (
	// keysChunk is the number of keys that are read at a time.
	keysChunk = 4096
	// recordsChunk is the number of records that are read at a time.
	recordsChunk = 64
	// headersChunk is the number of headers that are read at a time.
	headersChunk = 1024
)

// serveKeys sends the keys of what a request asks for.
func (e *endpoint) serveKeys(a *answer, q question) error {
	h, _, err := e.heldAndShown(q)
	if err != nil {
		return err
	}
	part, err := e.query(q, h)
	if err != nil {
		return err
	}
	release, err := q.slot(e.reading)
	if err != nil {
		return err
	}
	defer release()
	size := keysChunk
	if part.Index != "" {
		// Read all keys at once, because each part would look up the value again. With a
		// limit, Keys checks the objects' headers.
		size = math.MaxInt
	}
	return eachPart(part, size, func(part store.Query) (n int, last string, err error) {
		keys, err := h.store.Keys(part)
		if err != nil {
			return 0, "", err
		}
		w := a.parts()
		if n = len(keys); n > 0 {
			last, err = keys[n-1], w.Keys(keys)
		}
		if err == nil {
			err = a.flush()
		}
		return n, last, err
	})
}

// serveRecords sends the stored records of keys, as far as they exist, and the
// dictionaries that the client does not have.
func (e *endpoint) serveRecords(a *answer, q question) error {
	h, show, err := e.heldAndShown(q)
	if err != nil {
		return err
	}
	had := q.have()
	release, err := q.slot(e.reading)
	if err != nil {
		return err
	}
	defer release()
	return a.chunks(q.Values["key"], recordsChunk, func(keys []string) error {
		out, err := h.records(keys, show)
		if err != nil {
			return err
		}
		w := a.parts()
		for id, dictionary := range out.Dictionaries {
			name := wire.DictionaryName(id, dictionary)
			if had[name] {
				continue
			}
			had[name] = true
			if err := w.Dictionary(id, dictionary); err != nil {
				return err
			}
		}
		for _, r := range out.Records {
			if err := w.Record(r); err != nil {
				return err
			}
		}
		return nil
	})
}

// serveHeaders sends the headers of keys, as far as they exist.
func (e *endpoint) serveHeaders(a *answer, q question) error {
	h, err := e.held(q)
	if err != nil {
		return err
	}
	release, err := q.slot(e.reading)
	if err != nil {
		return err
	}
	defer release()
	return a.chunks(q.Values["key"], headersChunk, func(keys []string) error {
		headers, err := h.store.HeadersOf(keys)
		if err != nil {
			return err
		}
		w := a.parts()
		for _, header := range headers {
			if err := w.Header(header); err != nil {
				return err
			}
		}
		return nil
	})
}

// chunks calls send with so many keys at a time, and flushes the parts that it sends. An
// answer without parts is one, too.
func (a *answer) chunks(keys []string, n int, send func(keys []string) error) error {
	for some := range slices.Chunk(keys, n) {
		if err := send(some); err != nil {
			return err
		}
		if err := a.flush(); err != nil {
			return err
		}
	}
	a.parts()
	return nil
}

// have returns the dictionaries that the client has, by wire.DictionaryName.
func (q question) have() map[string]bool {
	had := map[string]bool{}
	for name := range strings.SplitSeq(q.Get("have"), ",") {
		had[name] = true
	}
	return had
}

// records returns the records of the keys that exist. Objects in memory are encoded; if
// show is false, Secrets are redacted and encoded.
func (h held) records(keys []string, show bool) (out store.Records, err error) {
	stored := map[string]int{}
	if r, ok := h.store.(store.Recorder); ok {
		out, err = r.Records(keys)
		isStored := !errors.Is(err, errors.ErrUnsupported)
		// Only a Go type says that there is no Secret among its objects.
		if isStored && (err != nil || show || !h.scope.IsSecret() && h.scope.Form == store.Typed) {
			return out, err
		}
		for _, r := range out.Records {
			stored[r.Key] = r.Bytes
		}
	}
	out = store.Records{}
	for _, key := range keys {
		e, ok, err := h.store.Entry(key)
		if err != nil {
			return out, err
		}
		if !ok {
			continue
		}
		record, err := h.encode(key, e, show)
		if err != nil {
			return out, err
		}
		if bytes, ok := stored[key]; ok {
			record.Bytes = bytes
		}
		out.Records = append(out.Records, record)
	}
	return out, nil
}

// encode returns the record of an entry, without what the client may not have.
func (h held) encode(key string, e store.Entry, show bool) (r store.Record, err error) {
	obj, err := h.store.Decode(e)
	if err != nil {
		return r, err
	}
	if !show && secret.Is(h.scope, obj) {
		if obj, err = secret.Redact(obj); err != nil {
			return r, fmt.Errorf("object %q: %w", key, err)
		}
	}
	c, err := codec.For(obj)
	if err != nil {
		return r, fmt.Errorf("object %q: %w", key, err)
	}
	// To encode an object may change it (see store.Store.Encode), and handlers have it,
	// too.
	payload, err := c.Encode(obj.DeepCopyObject())
	if err != nil {
		return r, fmt.Errorf("object %q: %w", key, err)
	}
	return store.Record{Key: key, Codec: c.ID(), Payload: payload, Bytes: len(payload)}, nil
}
