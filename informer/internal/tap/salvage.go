package tap

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/internal/ratelimit"
)

// errList is the error of a list that client-go cannot decode.
var errList = errors.New("an object of the list cannot be decoded")

// List sends a list. If client-go cannot decode the answer, List sends it again and
// returns the objects that can be decoded, and stand-ins for the others. If the requests
// of the ListerWatcher do not come through Open, the objects are taken from the answer as
// client-go logs it, and the result is a *metav1.List. Where an object could not be
// decoded, the error has no content of it.
func (s *StandIns) List(ctx context.Context, send func(context.Context) (runtime.Object, error)) (runtime.Object, error) {
	list, err := send(s.With(ctx))
	if s == nil || err == nil || !isDecoding(err) || ctx.Err() != nil {
		return list, err
	}
	failed := s.failed.Load()
	switch {
	case s.Start():
		list, err = send(s.With(ctx))
	case s.unlogged.Load():
		return list, err
	default:
		seen := &bodies{}
		again, errAgain := send(klog.NewContext(ctx, klog.New(bodySink{seen, klog.FromContext(ctx)})))
		body, ok := seen.only()
		if !ok {
			// An error of the connection says that there was no answer.
			s.unlogged.Store(errAgain == nil || isDecoding(errAgain))
			return list, err
		}
		if list, err = again, errAgain; err != nil && isDecoding(err) {
			if salvaged, ok := s.salvage(body); ok && s.failed.Load() > failed {
				return salvaged, nil
			}
		}
	}
	if err != nil && isDecoding(err) && s.failed.Load() > failed {
		err = fmt.Errorf("%w as %s", errList, s.typ)
	}
	return list, err
}

// unread is in client-go's errors of an answer that was cut
// (k8s.io/client-go/rest, Request.transformResponse). The error of an HTTP/2 stream that
// was reset has a type of net/http that cannot be named.
const unread = "error when reading response body"

// isDecoding reports whether an error of a list may say that client-go could not decode
// the answer: the error is neither the server's nor that of a connection.
func isDecoding(err error) bool {
	var network net.Error // a *url.Error is one
	return !errors.As(err, new(apierrors.APIStatus)) && !errors.As(err, &network) &&
		!utilnet.IsProbableEOF(err) && !utilnet.IsHTTP2ConnectionLost(err) && !errors.Is(err, io.ErrUnexpectedEOF) &&
		!ratelimit.Refused(err) && !strings.Contains(err.Error(), unread) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// salvage decodes a list one object at a time.
func (s *StandIns) salvage(body []byte) (*metav1.List, bool) {
	list := &metav1.List{}
	add := func(into func(obj any) error) bool {
		obj, err := s.decode(into)
		list.Items = append(list.Items, runtime.RawExtension{Object: obj})
		return err == nil
	}
	if message, isProtobuf := messageOf(body); isProtobuf {
		ok := true
		edit(message, listMetadata, func(m []byte) ([]byte, bool) {
			ok = list.Unmarshal(appendField(nil, listMetadata, m)) == nil
			return nil, false
		})
		edit(message, listItems, func(item []byte) ([]byte, bool) {
			if standIn, is := (protobufForm{s}).sift(item); is {
				item = standIn
			}
			ok = add(func(obj any) error { return unmarshal(item, obj) }) && ok
			return nil, false
		})
		return list, ok
	}
	var answer struct {
		metav1.ListMeta `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	if utiljson.Unmarshal(body, &answer) != nil {
		return nil, false
	}
	list.ListMeta = answer.ListMeta
	for _, item := range answer.Items {
		if standIn, is := (jsonForm{s}).sift(item); is {
			item = standIn
		}
		if !add(func(obj any) error { return utiljson.Unmarshal(item, obj) }) {
			return nil, false
		}
	}
	return list, true
}

// messageOf returns the message of an encoded list in protobuf.
func messageOf(body []byte) (message []byte, is bool) {
	rest, is := strings.CutPrefix(string(body), string(magic))
	if is {
		edit([]byte(rest), unknownRaw, func(m []byte) ([]byte, bool) {
			message = m
			return nil, false
		})
	}
	return message, is
}

// bodies are the answers of one call of a ListerWatcher. It is safe for concurrent use.
type bodies struct {
	mu   sync.Mutex
	seen []string
}

func (b *bodies) add(body string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, body)
}

// only returns the answer if there was one: a ListerWatcher may make one list of several.
func (b *bodies) only() ([]byte, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.seen) != 1 {
		return nil, false
	}
	if !strings.HasPrefix(b.seen[0], "00000000  ") {
		return []byte(b.seen[0]), true
	}
	return undump(b.seen[0])
}

// undump reads what hex.Dump has written.
func undump(dump string) (out []byte, ok bool) {
	for line := range strings.Lines(dump) {
		const from, to = 10, 58 // of the bytes in a line
		if len(line) < to {
			return nil, false
		}
		b, err := hex.DecodeString(strings.ReplaceAll(line[from:to], " ", ""))
		if err != nil {
			return nil, false
		}
		out = append(out, b...)
	}
	return out, true
}

// bodySink is a klog.LogSink that keeps the bodies of answers, which client-go logs at
// verbosity 8, whole from 10 (k8s.io/client-go/rest, logBody). Everything else goes to
// the logger of the caller.
type bodySink struct {
	bodies *bodies
	next   klog.Logger
}

const bodyVerbosity = 10

// Init implements klog.LogSink.
func (bodySink) Init(klog.RuntimeInfo) {}

// Enabled implements klog.LogSink.
func (s bodySink) Enabled(level int) bool {
	return level <= bodyVerbosity || s.next.V(level).Enabled()
}

// Info implements klog.LogSink.
func (s bodySink) Info(level int, msg string, kv ...any) {
	if msg == "Response Body" && len(kv) == 2 && kv[0] == "body" {
		if body, ok := kv[1].(string); ok {
			s.bodies.add(body)
		}
	}
	s.next.V(level).Info(msg, kv...)
}

// Error implements klog.LogSink.
func (s bodySink) Error(err error, msg string, kv ...any) { s.next.Error(err, msg, kv...) }

// WithValues implements klog.LogSink.
func (s bodySink) WithValues(kv ...any) klog.LogSink {
	return bodySink{s.bodies, s.next.WithValues(kv...)}
}

// WithName implements klog.LogSink.
func (s bodySink) WithName(name string) klog.LogSink {
	return bodySink{s.bodies, s.next.WithName(name)}
}
