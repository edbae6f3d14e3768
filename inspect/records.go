package inspect

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/secret"
	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
)

// held is a scope that can be read: an informer's, or one that only the file has.
type held struct {
	scope store.Scope
	store store.Reader
}

// held returns what is asked about. An informer that has not opened its scope yet
// does not know what the file has of it.
func (e *endpoint) held(q question) (held, error) {
	inf, err := e.find(q)
	if err == nil && inf.Opened() {
		return held{inf.Scope(), inf.Reader()}, nil
	}
	if viewer, ok := e.source.Backend().(store.Viewer); ok && q.Get("scope") != "" {
		s, scope, viewErr := viewer.View(q.Get("scope"))
		if viewErr == nil {
			return held{scope, s}, nil
		}
		if !errors.Is(viewErr, store.ErrNotFound) {
			return held{}, viewErr
		}
	}
	if err != nil {
		return held{}, err
	}
	return held{inf.Scope(), inf.Reader()}, nil
}

// serveFile sends what the file has, with its scopes that no informer holds.
func (e *endpoint) serveFile(a *answer, _ question) error {
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
	var err error
	if file.Scopes, err = db.Scopes(); err != nil {
		return err
	}
	persisted := map[string]bool{} // of a scope's informers that one is asked, see find
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

// ahead replaces what the file's last commit has of an informer's scope by what its
// readers see now, which is ahead of the file by up to a commit interval.
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
	// keysChunk is how many keys are read at a time.
	keysChunk = 4096
	// recordsChunk is how many records are.
	recordsChunk = 64
	// headersChunk is how many headers are.
	headersChunk = 1024
)

// serveKeys sends the keys that an index, a selector or a list of keys leaves.
func (e *endpoint) serveKeys(a *answer, q question) error {
	h, err := e.held(q)
	if err != nil {
		return err
	}
	part := store.Query{Limit: keysChunk}
	if part.Selector, err = q.selector(); err != nil {
		return err
	}
	if q.Has("index") {
		if part.Index, err = q.index(h.store, "index"); err != nil {
			return err
		}
		// All at once: each part would look the value up again.
		part.Value, part.Limit = q.Get("value"), 0
	}
	release, err := q.slot(e.reading)
	if err != nil {
		return err
	}
	defer release()
	if q.Has("key") {
		return e.sendKeys(a, func() ([]string, error) { return store.Among(h.store, q.Values["key"], part.Selector) }, nil)
	}
	return e.sendKeys(a, func() ([]string, error) { return h.keys(part) }, func(keys []string) bool {
		if part.Limit == 0 || len(keys) < part.Limit {
			return false
		}
		part.After = keys[len(keys)-1]
		return true
	})
}

// sendKeys sends what next returns until more, which may be nil, says that there is
// nothing else.
func (e *endpoint) sendKeys(a *answer, next func() ([]string, error), more func([]string) bool) error {
	for {
		keys, err := next()
		if err != nil {
			return a.cut(err)
		}
		a.begin(wire.ContentType)
		w := wire.NewWriter(a)
		if len(keys) > 0 {
			if err := w.Keys(keys); err != nil {
				return err
			}
		}
		if err := a.send(w); err != nil || more == nil || !more(keys) {
			return err
		}
	}
}

// send sends what was written.
func (a *answer) send(w *wire.Writer) error {
	if err := w.Flush(); err != nil {
		return err
	}
	return a.flush()
}

// cut ends an answer of parts with an error.
func (a *answer) cut(err error) error {
	if !a.begun {
		return err
	}
	return wire.NewWriter(a).Error(err)
}

func (h held) keys(q store.Query) ([]string, error) {
	if r, ok := h.store.(store.Recorder); ok {
		return r.Keys(q)
	}
	entries, err := h.store.Select(q)
	if err != nil {
		return nil, err
	}
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = e.Key
	}
	return keys, nil
}

// serveRecords sends the objects of keys, those that there are, as they are stored,
// with the dictionaries that the client says it does not have.
func (e *endpoint) serveRecords(a *answer, q question) error {
	return e.sendObjects(a, q, false)
}

// serveHeaders does it with the headers of objects where these say enough for a table.
func (e *endpoint) serveHeaders(a *answer, q question) error {
	return e.sendObjects(a, q, true)
}

func (e *endpoint) sendObjects(a *answer, q question, headers bool) error {
	h, err := e.held(q)
	if err != nil {
		return err
	}
	show, err := q.showsSecrets()
	if err != nil {
		return err
	}
	had := q.have()
	release, err := q.slot(e.reading)
	if err != nil {
		return err
	}
	defer release()
	keys := q.Values["key"]
	if headers {
		if keys, err = e.sendHeaders(a, h.store, keys); err != nil {
			return err
		}
	}
	for keys := range slices.Chunk(keys, recordsChunk) {
		out, err := h.records(keys, show || !h.scope.IsSecret())
		if err != nil {
			return a.cut(err)
		}
		a.begin(wire.ContentType)
		w := wire.NewWriter(a)
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
		if err := a.send(w); err != nil {
			return err
		}
	}
	a.begin(wire.ContentType)
	return nil
}

// sendHeaders returns the keys whose headers do not have a creation timestamp: the
// objects of these are sent.
func (e *endpoint) sendHeaders(a *answer, s store.Reader, keys []string) (left []string, err error) {
	for keys := range slices.Chunk(keys, headersChunk) {
		headers, err := s.HeadersOf(keys)
		if err != nil {
			return nil, a.cut(err)
		}
		a.begin(wire.ContentType)
		w := wire.NewWriter(a)
		for _, h := range headers {
			if h.Created.IsZero() {
				left = append(left, h.Key)
				continue
			}
			h.Labels = nil // they would be half of it
			if err := w.Header(h); err != nil {
				return nil, err
			}
		}
		if err := a.send(w); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// have are the dictionaries that the client has, as wire.DictionaryName has it.
func (q question) have() map[string]bool {
	had := map[string]bool{}
	for name := range strings.SplitSeq(q.Get("have"), ",") {
		had[name] = true
	}
	return had
}

// records returns those of the keys that there are. What is not to be shown, and what
// is in memory, is encoded for it.
func (h held) records(keys []string, show bool) (out store.Records, err error) {
	stored := map[string]int{}
	if r, ok := h.store.(store.Recorder); ok {
		out, err = r.Records(keys)
		isStored := !errors.Is(err, errors.ErrUnsupported)
		if isStored && (err != nil || show) {
			return out, err
		}
		for _, r := range out.Records {
			stored[r.Key] = r.Bytes
		}
	}
	out, err = h.encoded(keys, show)
	for i, r := range out.Records {
		if bytes, ok := stored[r.Key]; ok {
			out.Records[i].Bytes = bytes
		}
	}
	return out, err
}

func (h held) encoded(keys []string, show bool) (out store.Records, err error) {
	for _, key := range keys {
		e, ok, err := h.store.Entry(key)
		if err != nil {
			return out, err
		}
		if !ok {
			continue
		}
		obj, err := h.store.Decode(e)
		if err != nil {
			return out, err
		}
		if !show {
			if obj, err = secret.Redact(obj); err != nil {
				return out, fmt.Errorf("object %q: %w", key, err)
			}
		}
		c, err := codec.For(obj)
		if err != nil {
			return out, fmt.Errorf("object %q: %w", key, err)
		}
		payload, err := c.Encode(obj)
		if err != nil {
			return out, fmt.Errorf("object %q: %w", key, err)
		}
		out.Records = append(out.Records, store.Record{Key: key, Codec: c.ID(), Payload: payload, Bytes: len(payload)})
	}
	return out, nil
}
