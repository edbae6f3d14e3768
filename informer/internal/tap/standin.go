package tap

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
)

// StandIns replaces the objects of an answer that a Go type does not take, such as one
// with a malformed quantity, by stand-ins, which have no more than the metadata that
// identifies an object. client-go gives up a whole list, and ends a watch, for one such
// object. The Go type that decodes the answers of a request is that of the informer's
// example.
//
// A StandIns does nothing until Start is called, after client-go has failed to decode an
// answer, since it decodes each object once more. From then on it works on all answers.
//
// A nil *StandIns is valid and does nothing. A StandIns is safe for concurrent use.
type StandIns struct {
	typ    reflect.Type // a pointer to a struct
	mark   string       // how the selfLink of a stand-in begins
	starts atomic.Bool
	// passed is true once an answer has come through Open.
	passed atomic.Bool
	failed atomic.Int64 // objects that were not decoded
	// unlogged is true if client-go does not log the one answer to a list, as it is not
	// its REST client that lists.
	unlogged atomic.Bool
}

// NewStandIns returns a StandIns for objects of the type of example, a pointer to a
// struct.
func NewStandIns(example runtime.Object) *StandIns {
	return &StandIns{typ: reflect.TypeOf(example), mark: newMark()}
}

type standInsKey struct{}

// With returns a context whose answers go through the StandIns.
func (s *StandIns) With(ctx context.Context) context.Context {
	if s == nil {
		return ctx
	}
	return context.WithValue(ctx, standInsKey{}, s)
}

// StandInsFrom returns the StandIns of a request, nil if it has none.
func StandInsFrom(ctx context.Context) *StandIns {
	s, _ := ctx.Value(standInsKey{}).(*StandIns)
	return s
}

// Start makes the StandIns work on the answers from now on. It returns false if that is
// of no use, because no answer has come through Open.
func (s *StandIns) Start() bool {
	if s == nil || !s.passed.Load() {
		return false
	}
	s.starts.Store(true)
	return true
}

// Refused returns an *store.ObjectError with the key of an object if it is a stand-in,
// else nil. The error has no content of the object.
func (s *StandIns) Refused(obj runtime.Object) error {
	if s == nil {
		return nil
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil //nolint:nilerr // no stand-in
	}
	why, is := strings.CutPrefix(accessor.GetSelfLink(), s.mark)
	if !is {
		return nil
	}
	key, err := store.KeyOf(cache.MetaNamespaceKeyFunc, obj)
	if err != nil {
		return err
	}
	return &store.ObjectError{Key: key, Err: errors.New(why)}
}

// Open replaces the body of an answer.
func (s *StandIns) Open(resp *http.Response) {
	if s == nil || resp.StatusCode != http.StatusOK {
		return
	}
	s.passed.Store(true)
	media, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || !s.starts.Load() || resp.Header.Get("Content-Encoding") != "" {
		return
	}
	var f form
	switch {
	case media == runtime.ContentTypeProtobuf && params["as"] == "":
		f = protobufForm{s}
	case media == runtime.ContentTypeJSON:
		f = jsonForm{s}
	default:
		return
	}
	body := resp.Body
	isStream := params["stream"] == "watch" || resp.Request != nil && resp.Request.URL.Query().Get("watch") != ""
	var next func() ([]byte, error)
	if isStream {
		next = f.events(body)
	} else {
		next = func() ([]byte, error) {
			all, err := io.ReadAll(body)
			if err == nil && len(all) == 0 {
				err = io.EOF
			}
			return f.list(all), err
		}
	}
	resp.Body = &sifted{body: body, next: next}
	resp.ContentLength = -1
	resp.Header.Del("Content-Length")
}

// sifted is a body that consists of parts. One goroutine at a time reads it.
type sifted struct {
	body io.Closer
	next func() ([]byte, error) // returns the next part
	part []byte                 // the rest of the part that is read
	err  error
}

// Read implements io.Reader.
func (b *sifted) Read(p []byte) (int, error) {
	for len(b.part) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		b.part, b.err = b.next()
	}
	n := copy(p, b.part)
	b.part = b.part[n:]
	return n, nil
}

// Close implements io.Closer.
func (b *sifted) Close() error { return b.body.Close() }

// form is an encoding of answers.
type form interface {
	// list returns an encoded list with stand-ins. It returns what it does not understand
	// unchanged.
	list(all []byte) []byte
	// events returns a function that returns the next event of an encoded watch, or what
	// is left of it before the error.
	events(body io.Reader) func() ([]byte, error)
}

// decode decodes one object and returns why that fails, without content of the object.
func (s *StandIns) decode(into func(obj any) error) (_ runtime.Object, err error) {
	defer func() {
		if r := recover(); r != nil {
			s.failed.Add(1)
			err = fmt.Errorf("the object cannot be decoded as %s: panic of type %T", s.typ, r)
		}
	}()
	obj := reflect.New(s.typ.Elem()).Interface()
	cause := into(obj)
	if cause == nil {
		return obj.(runtime.Object), nil
	}
	s.failed.Add(1)
	err = fmt.Errorf("the object cannot be decoded as %s", s.typ)
	var mistyped *json.UnmarshalTypeError
	if errors.As(cause, &mistyped) && mistyped.Field != "" {
		err = fmt.Errorf("%w: %s is not a %s", err, mistyped.Field, mistyped.Type)
	}
	return nil, err
}

// isObject reports whether an event of this type contains an object of the collection.
func isObject(event string) bool {
	switch watch.EventType(event) {
	case watch.Added, watch.Modified, watch.Deleted:
		return true
	}
	return false
}

type jsonForm struct{ *StandIns }

// sift returns an object, or its stand-in. ok is false if it needs none, or if not even
// its metadata can be read.
func (f jsonForm) sift(item []byte) (_ json.RawMessage, ok bool) {
	_, err := f.decode(func(obj any) error { return utiljson.Unmarshal(item, obj) })
	if err == nil {
		return nil, false
	}
	type identity struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace,omitempty"`
		UID       string `json:"uid,omitempty"`
		RV        string `json:"resourceVersion,omitempty"`
		SelfLink  string `json:"selfLink"`
	}
	var standIn struct {
		APIVersion string   `json:"apiVersion,omitempty"`
		Kind       string   `json:"kind,omitempty"`
		Metadata   identity `json:"metadata"`
	}
	if utiljson.Unmarshal(item, &standIn) != nil || standIn.Metadata.Name == "" {
		return nil, false
	}
	standIn.Metadata.SelfLink = f.mark + err.Error()
	out, err := json.Marshal(standIn)
	return out, err == nil
}

func (f jsonForm) list(all []byte) []byte {
	var list map[string]json.RawMessage
	var items []json.RawMessage
	if json.Unmarshal(all, &list) != nil || json.Unmarshal(list["items"], &items) != nil {
		return all
	}
	found := false
	for i, item := range items {
		if standIn, ok := f.sift(item); ok {
			items[i], found = standIn, true
		}
	}
	if !found {
		return all
	}
	var err error
	if list["items"], err = json.Marshal(items); err != nil {
		return all
	}
	out, err := json.Marshal(list)
	if err != nil {
		return all
	}
	return out
}

func (f jsonForm) events(body io.Reader) func() ([]byte, error) {
	in := json.NewDecoder(body)
	return func() ([]byte, error) {
		var raw json.RawMessage
		if err := in.Decode(&raw); err != nil {
			return nil, err
		}
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if json.Unmarshal(raw, &e) == nil && isObject(e.Type) {
			if standIn, ok := f.sift(e.Object); ok {
				e.Object = standIn
				if out, err := json.Marshal(e); err == nil {
					raw = out
				}
			}
		}
		return append(raw, '\n'), nil
	}
}

type protobufForm struct{ *StandIns }

// sift is like jsonForm.sift, for the message of an object.
func (f protobufForm) sift(message []byte) (_ []byte, ok bool) {
	_, err := f.decode(func(obj any) error { return unmarshal(message, obj) })
	if err == nil {
		return nil, false
	}
	m, ok := codec.ReadMetadata(message)
	if !ok || len(m.Name) == 0 {
		return nil, false
	}
	link := f.mark + err.Error()
	var metadata []byte
	metadata = appendField(metadata, metaName, m.Name)
	metadata = appendField(metadata, metaNamespace, m.Namespace)
	metadata = appendField(metadata, metaSelfLink, link)
	metadata = appendField(metadata, metaUID, m.UID)
	metadata = appendField(metadata, metaRV, m.RV)
	return appendField(nil, objectMetadata, metadata), true
}

func unmarshal(message []byte, obj any) error {
	m, ok := obj.(interface{ Unmarshal([]byte) error })
	if !ok {
		return fmt.Errorf("%T is not a message", obj)
	}
	return m.Unmarshal(message)
}

// edit replaces the fields with a number in a message. It returns an unchanged message
// as it is, and nil for one that it does not understand.
func edit(message []byte, number protowire.Number, f func([]byte) ([]byte, bool)) []byte {
	var out []byte // nil while nothing was replaced
	for at := 0; at < len(message); {
		n, kind, size := protowire.ConsumeField(message[at:])
		if size < 0 {
			return nil
		}
		field := message[at : at+size]
		at += size
		if n == number && kind == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(field)
			value, _ := protowire.ConsumeBytes(field[tag:])
			if replaced, ok := f(value); ok {
				if out == nil {
					out = append(make([]byte, 0, len(message)), message[:at-size]...)
				}
				out = appendField(out, number, replaced)
				continue
			}
		}
		if out != nil {
			out = append(out, field...)
		}
	}
	if out == nil {
		return message
	}
	return out
}

// inside is edit for the message in an envelope.
func (f protobufForm) inside(envelope []byte, change func(message []byte) []byte) []byte {
	rest, ok := bytes.CutPrefix(envelope, magic)
	if !ok {
		return envelope
	}
	out := edit(rest, unknownRaw, func(message []byte) ([]byte, bool) {
		changed := change(message)
		return changed, changed != nil
	})
	if out == nil {
		return envelope
	}
	return append(bytes.Clone(magic), out...)
}

func (f protobufForm) list(all []byte) []byte {
	return f.inside(all, func(list []byte) []byte { return edit(list, listItems, f.sift) })
}

func (f protobufForm) events(body io.Reader) func() ([]byte, error) {
	in := bufio.NewReader(body)
	tooLarge := false // an event: from there on, all is as it was sent
	return func() ([]byte, error) {
		if tooLarge {
			rest := make([]byte, 32<<10)
			n, err := in.Read(rest)
			return rest[:n], err
		}
		head := make([]byte, 4)
		if n, err := io.ReadFull(in, head); err != nil {
			return head[:n], cutOff(err)
		}
		size := binary.BigEndian.Uint32(head)
		if tooLarge = size > maxFrame; tooLarge {
			return head, nil
		}
		frame := make([]byte, size)
		if n, err := io.ReadFull(in, frame); err != nil {
			return append(head, frame[:n]...), cutOff(err)
		}
		frame = f.event(frame)
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...), nil
	}
}

// event returns an event with a stand-in if it needs one.
func (f protobufForm) event(frame []byte) []byte {
	isOne := false
	edit(frame, eventType, func(kind []byte) ([]byte, bool) {
		isOne = isObject(string(kind))
		return nil, false
	})
	if !isOne {
		return frame
	}
	out := edit(frame, eventObject, func(extension []byte) ([]byte, bool) {
		changed := edit(extension, extensionBytes, func(envelope []byte) ([]byte, bool) {
			return f.inside(envelope, func(message []byte) []byte {
				standIn, ok := f.sift(message)
				if !ok {
					return nil
				}
				return standIn
			}), true
		})
		return changed, changed != nil
	})
	if out == nil {
		return frame
	}
	return out
}
