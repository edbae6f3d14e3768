package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
)

// liveScope is one scope of a process. It implements store.Reader, with these limits: an
// answer is not of one moment, Query.At is an error, Checkpoint and Len are those of the
// description, there are no index functions, and Secrets are redacted as the process
// does it. Requests end with the context of the Process.
type liveScope struct {
	*Process
	info  store.Info
	codec codec.Codec // may be nil

	mu           sync.Mutex // protects dictionaries
	dictionaries map[uint64]dictionary
}

// dictionary is a compression dictionary that the process has sent.
type dictionary struct {
	name string // in the format of wire.DictionaryName
	codec.Compressor
}

// parts sends a request for parts.
func (s *liveScope) parts(path string, parameters url.Values) (wire.Answer, error) {
	parameters.Set("scope", s.info.ID)
	body, err := s.Ask(path, parameters)
	if err != nil {
		return wire.Answer{}, err
	}
	defer func() { _ = body.Close() }()
	answer, err := wire.Read(body)
	if err != nil {
		return wire.Answer{}, s.Failed(err)
	}
	return answer, nil
}

// Checkpoint implements store.Reader.
func (s *liveScope) Checkpoint() store.Checkpoint { return s.info.Checkpoint }

// Len implements store.Reader.
func (s *liveScope) Len() int { return s.info.Objects }

// Indexers implements store.Reader.
func (s *liveScope) Indexers() cache.Indexers { return nil }

// Keys implements store.Reader.
func (s *liveScope) Keys(q store.Query) (found []string, err error) {
	if !q.At.IsZero() {
		return nil, fmt.Errorf("%s of a process at %s: %w", s.info.Scope, momentText(q.At), errors.ErrUnsupported)
	}
	selector := q.Matcher()
	if labels.MatchesNothing(selector) {
		return nil, nil // its text is that of one that matches everything
	}
	if q.Index != "" && len(q.Values) == 0 {
		return nil, nil
	}
	parameters := url.Values{"secrets": {s.Secrets}, "namespace": {q.Namespace}, "selector": {selector.String()}, "after": {q.After}}
	if q.Index != "" {
		parameters["index"], parameters["value"] = []string{q.Index}, q.Values
	}
	if q.Limit > 0 {
		parameters.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Keys == nil {
		answer, err := s.parts("/v1/keys", parameters)
		return answer.Keys, err
	}
	for some := range byBytes(slices.Compact(slices.Sorted(slices.Values(q.Keys)))) {
		parameters["key"] = some
		answer, err := s.parts("/v1/keys", parameters)
		if err != nil {
			return nil, err
		}
		found = append(found, answer.Keys...)
	}
	if q.Limit > 0 {
		found = found[:min(q.Limit, len(found))]
	}
	return found, nil
}

// HeadersOf implements store.Reader.
func (s *liveScope) HeadersOf(keys []string) (headers []store.Header, err error) {
	for some := range byBytes(keys) {
		answer, err := s.parts("/v1/headers", url.Values{"key": some})
		if err != nil {
			return nil, err
		}
		headers = append(headers, answer.Headers...)
	}
	return headers, nil
}

// maxKeys is the number of bytes of keys in one query. The process accepts headers of 64
// KiB, and a byte of a key may take three in a URL.
const maxKeys = 16 << 10

// byBytes yields the keys in parts that fit into one query.
func byBytes(keys []string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for len(keys) > 0 {
			n, size := 1, len(keys[0])
			for ; n < len(keys) && size+len(keys[n]) < maxKeys-10*n; n++ {
				size += len(keys[n])
			}
			if !yield(keys[:n]) {
				return
			}
			keys = keys[n:]
		}
	}
}

// Select implements store.Reader.
func (s *liveScope) Select(q store.Query) (entries []store.Entry, err error) {
	keys, rest := slices.Sorted(slices.Values(q.Keys)), q
	if rest.Keys = nil; q.Keys == nil || !reflect.DeepEqual(rest, store.Query{}) {
		if keys, err = s.Keys(q); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for some := range byBytes(slices.Compact(keys)) {
		have := make([]string, 0, len(s.dictionaries))
		for _, dictionary := range s.dictionaries {
			have = append(have, dictionary.name)
		}
		answer, err := s.parts("/v1/records", url.Values{"key": some, "secrets": {s.Secrets}, "have": {strings.Join(have, ",")}})
		if err != nil {
			return nil, err
		}
		for id, sent := range answer.Dictionaries {
			name := wire.DictionaryName(id, sent)
			z, err := codec.NewCompressor(sent)
			if err != nil {
				return nil, s.Failed(err)
			}
			s.dictionaries[id] = dictionary{name, z}
		}
		part := make([]store.Entry, len(answer.Records))
		err = parallel.Do(len(part), func(i int) (err error) {
			part[i], err = s.entry(answer.Records[i])
			return err
		})
		if err != nil {
			return nil, err
		}
		entries = append(entries, part...)
	}
	return entries, nil
}

// entry returns a record as an entry, whose Raw is that of wire.Raw.
func (s *liveScope) entry(r store.Record) (store.Entry, error) {
	if r.Dictionary == 0 {
		return store.Entry{Key: r.Key, Raw: wire.Raw(r.Codec, r.Payload)}, nil
	}
	z := s.dictionaries[r.Dictionary].Compressor
	if z == nil {
		return store.Entry{}, fmt.Errorf("object %q: dictionary %d was not sent", r.Key, r.Dictionary)
	}
	raw, err := z.Decompress(wire.Raw(r.Codec, nil), r.Payload)
	if err != nil {
		return store.Entry{}, fmt.Errorf("object %q: %w", r.Key, err)
	}
	return store.Entry{Key: r.Key, Raw: raw}, nil
}

// Entry implements store.Reader.
func (s *liveScope) Entry(key string) (e store.Entry, exists bool, err error) {
	entries, err := s.Select(store.Query{Keys: []string{key}})
	if err != nil || len(entries) == 0 {
		return e, false, err
	}
	return entries[0], true, nil
}

// Object implements store.Reader.
func (s *liveScope) Object(key string) (obj runtime.Object, exists bool, err error) {
	e, exists, err := s.Entry(key)
	if err != nil || !exists {
		return nil, false, err
	}
	obj, err = s.Decode(e)
	return obj, err == nil, err
}

// Objects implements store.Reader.
func (s *liveScope) Objects(q store.Query) ([]runtime.Object, error) {
	entries, err := s.Select(q)
	if err != nil {
		return nil, err
	}
	return store.DecodeAll[runtime.Object](s, entries)
}

// Decode implements store.Reader. It decodes in the same way as the store of a file.
func (s *liveScope) Decode(e store.Entry) (obj runtime.Object, err error) {
	if e.Object != nil {
		return e.Object, nil
	}
	if len(e.Raw) == 0 {
		return nil, fmt.Errorf("object %q: nothing was sent", e.Key)
	}
	id, payload := e.Raw[0], e.Raw[1:]
	switch {
	case s.codec != nil && s.codec.ID() == id:
		obj, err = s.codec.Decode(payload)
	case s.info.Scope.Form == store.Metadata && id == codec.IDProtobuf:
		var c codec.Codec
		if c, err = codec.For(&metav1.PartialObjectMetadata{}); err == nil {
			obj, err = c.Decode(payload)
		}
	default:
		obj, err = codec.DecodeAny(id, s.info.Scope.Kind, payload)
	}
	if err != nil {
		return nil, fmt.Errorf("object %q: %w", e.Key, err)
	}
	return obj, nil
}

// IndexValue is one value of an index.
type IndexValue struct {
	Value string `json:"value"`
	Count int    `json:"count"` // number of objects with the value
}

// IndexValues returns the values of an index, sorted. Values of Secrets may be redacted.
func IndexValues(r store.Reader, name string) (out []IndexValue, err error) {
	if live, ok := r.(*liveScope); ok {
		return live.indexValues(name) // in one request
	}
	values, err := r.Values(name)
	if err != nil {
		return nil, err
	}
	for _, value := range values {
		keys, err := r.Keys(store.Query{Index: name, Values: []string{value}})
		if err != nil {
			return nil, err
		}
		out = append(out, IndexValue{value, len(keys)})
	}
	return out, nil
}

func (s *liveScope) indexValues(name string) (out []IndexValue, err error) {
	for l, err := range s.lines("/v1/index", url.Values{
		"scope": {s.info.ID}, "name": {name}, "secrets": {s.Secrets}, "limit": {strconv.Itoa(1 << 30)},
	}) {
		if err != nil {
			return nil, err
		}
		out = append(out, l.IndexValue)
	}
	return out, nil
}

// Values implements store.Reader. The process sends values that may be those of a Secret
// redacted.
func (s *liveScope) Values(name string) (values []string, err error) {
	counted, err := s.indexValues(name)
	for _, v := range counted {
		values = append(values, v.Value)
	}
	return values, err
}

// History implements store.Reader.
func (s *liveScope) History() (store.LogState, error) {
	return Document[store.LogState](s.Process, "/v1/history", url.Values{"scope": {s.info.ID}})
}

// Follow implements store.Reader.
func (s *liveScope) Follow(ctx context.Context, after store.Place) iter.Seq2[store.Event, error] {
	return s.follow(ctx, after, time.Time{}, store.LogFilter{})
}

// FollowSome implements store.LogFilterer.
func (s *liveScope) FollowSome(ctx context.Context, after store.Place, f store.LogFilter) iter.Seq2[store.Event, error] {
	return s.follow(ctx, after, time.Time{}, f)
}

// follow is FollowSome, of the zero Place without the changes that were written before a
// time.
func (s *liveScope) follow(ctx context.Context, after store.Place, since time.Time, f store.LogFilter) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		parameters := url.Values{"scope": {s.info.ID}, "secrets": {s.Secrets}, "name": f.Names}
		if f.Namespace != "" {
			parameters.Set("namespace", f.Namespace)
		}
		if !since.IsZero() {
			parameters.Set("since", since.Format(time.RFC3339Nano))
		}
		if !after.IsZero() {
			place, err := json.Marshal(after)
			if err != nil {
				yield(store.Event{}, err)
				return
			}
			parameters.Set("after", string(place))
		}
		until := *s.Process
		var stop context.CancelFunc
		until.Ctx, stop = context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(s.Ctx, stop)()
		for l, err := range until.lines("/v1/log", parameters) {
			if !yield(l.Event, err) || err != nil {
				return
			}
		}
		yield(store.Event{}, until.Failed(io.ErrUnexpectedEOF)) // a log has no end
	}
}

// line is one line of an answer, which is one of these.
type line struct {
	store.Event
	IndexValue
	wire.Failure
}

// lines sends a request for lines. An error is the last one.
func (p *Process) lines(path string, parameters url.Values) iter.Seq2[line, error] {
	return func(yield func(line, error) bool) {
		body, err := p.Ask(path, parameters)
		if err != nil {
			yield(line{}, err)
			return
		}
		defer func() { _ = body.Close() }()
		for dec := json.NewDecoder(body); ; {
			var l line
			err := dec.Decode(&l)
			switch {
			case errors.Is(err, io.EOF):
				return
			case err == nil && l.Text != "":
				err = &l.Failure
			}
			if err != nil {
				yield(line{}, p.Failed(err))
				return
			}
			if !yield(l, nil) {
				return
			}
		}
	}
}
