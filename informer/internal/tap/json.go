package tap

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/jsonscan"
)

// jsonMarker marks the objects of one answer in JSON.
type jsonMarker struct {
	tap              *Tap
	answer           *answer
	apiVersion, kind string // of objects that have none: see codec.JSONObject
	data             []byte // used again for each object
}

// mark appends to b what client-go receives for the object at the beginning of text, and
// returns the size of the object's text. ok is false if the object cannot be marked.
func (w *jsonMarker) mark(b, text []byte, deleted bool) (_ []byte, size int, ok bool) {
	t := w.tap
	var m codec.Metadata
	var at codec.JSONOffsets
	w.data, m, at, ok = t.json.AppendJSON(w.data[:0], text, codec.JSONObject{
		APIVersion: w.apiVersion, Kind: w.kind, WithoutManagedFields: t.strip,
	})
	how, kept := t.choose(), []byte(nil)
	if ok = ok && len(m.Name) > 0 && m.SelfLink == nil; ok {
		kept = bytes.Clone(w.data)
	} else {
		how = asSent
		if m, at, ok = w.identity(text); !ok {
			return b, 0, false
		}
	}
	if string(m.APIVersion) != t.apiVersion || t.kind != "" && string(m.Kind) != t.kind {
		return b, 0, false
	}
	link := appendNumbers([]byte(t.mark), w.answer.number, t.next(w.answer, kept))
	link = append(append(link, fate(deleted), how), m.SelfLink...)
	if how == isSlim {
		return appendSlim(b, m, link), at.End, true
	}
	// Of two members with one name, the last one counts.
	b = append(b, text[:at.Metadata]...)
	b = appendMember(b, "selfLink", link)
	return append(b, text[at.Metadata:at.End]...), at.End, true
}

// identity returns the kind and the selfLink of the object at the beginning of text,
// which is sent as the server has sent it. ok is false for a selfLink that no server
// sets, and for another text.
func (w *jsonMarker) identity(text []byte) (m codec.Metadata, at codec.JSONOffsets, ok bool) {
	s := jsonscan.New(text)
	for s.Open('{'); s.More('}'); {
		switch key := string(s.Key()); {
		case key == "apiVersion":
			m.APIVersion = s.String()
		case key == "kind":
			m.Kind = s.String()
		case key != "metadata":
			s.Skip()
		case at.Metadata > 0:
			s.Fail()
		default:
			for s.Open('{'); s.More('}'); {
				switch key := string(s.Key()); {
				case key == "name":
					m.Name = s.String()
				case key != "selfLink":
					s.Skip()
				case m.SelfLink != nil:
					s.Fail()
				default:
					m.SelfLink = s.String()
				}
			}
			at.Metadata = s.Offset() - 1
		}
	}
	at.End = s.Offset()
	if m.APIVersion == nil && m.Kind == nil {
		m.APIVersion, m.Kind = []byte(w.apiVersion), []byte(w.kind)
	}
	return m, at, s.OK() && at.Metadata > 0 && len(m.Name) > 0 && (m.SelfLink == nil || len(m.SelfLink) > 0)
}

// appendSlim appends a slim object.
func appendSlim(b []byte, m codec.Metadata, link []byte) []byte {
	b = append(b, '{')
	b = appendMember(b, "apiVersion", m.APIVersion)
	b = appendMember(b, "kind", m.Kind)
	b = append(b, `,"metadata":{`...)
	for _, member := range []struct {
		name  string
		value []byte
	}{{"name", m.Name}, {"namespace", m.Namespace}, {"uid", m.UID}, {"resourceVersion", m.RV}, {"selfLink", link}} {
		if len(member.value) > 0 {
			b = appendMember(b, member.name, member.value)
		}
	}
	return append(b, `}}`...)
}

// appendMember appends a member of an object, behind a comma if it is not the first one.
func appendMember(b []byte, name string, value []byte) []byte {
	if last := b[len(b)-1]; last != '{' {
		b = append(b, ',')
	}
	b = append(append(append(b, '"'), name...), `":`...)
	quoted, _ := json.Marshal(string(value)) // a string has a JSON form
	return append(b, quoted...)
}

// jsonList returns the list that client-go receives.
func jsonList(t *Tap, a *answer, all []byte) (slim []byte, ok bool) {
	w := jsonMarker{tap: t, answer: a}
	s := jsonscan.New(all)
	rv := ""
	begin, end := 0, 0 // of what is between the brackets of the items
	for s.Open('{'); s.More('}'); {
		switch key := string(s.Key()); {
		case key == "apiVersion" && w.apiVersion == "":
			w.apiVersion = string(s.String())
		case key == "kind" && w.kind == "":
			w.kind = strings.TrimSuffix(string(s.String()), "List")
		case key == "metadata":
			rv = jsonResourceVersion(s)
		case key == "items" && s.Next() == '[':
			if begin > 0 {
				return nil, false
			}
			s.Open('[')
			begin = s.Offset()
			slim = append(make([]byte, 0, len(all)/4), all[:begin]...)
			for s.More(']') {
				if last := slim[len(slim)-1]; last != '[' {
					slim = append(slim, ',')
				}
				s.Next()
				size := 0
				if slim, size, ok = w.mark(slim, all[s.Offset():], false); !ok {
					return nil, false
				}
				s.Advance(size)
			}
			end = s.Offset() - 1
		case key == "apiVersion" || key == "kind":
			return nil, false
		default:
			s.Skip()
		}
	}
	if s.Next() != 0 || !s.OK() {
		return nil, false
	}
	if t.addPoint(a, rv); begin == 0 { // an empty list may have no items
		return all, true
	}
	return append(slim, all[end:]...), true
}

// jsonResourceVersion reads metadata, and returns the resource version in it.
func jsonResourceVersion(s *jsonscan.Scanner) (rv string) {
	for s.Open('{'); s.More('}'); {
		if key := s.Key(); string(key) == "resourceVersion" && s.Next() == '"' {
			rv = string(s.String())
		} else {
			s.Skip()
		}
	}
	return rv
}

// jsonStream is the body of a watch in JSON: events, one behind the other. One goroutine
// at a time reads it.
type jsonStream struct {
	jsonMarker
	body    io.ReadCloser
	in      []byte    // what was read of the body and is not in out
	memory  []byte    // of in
	scanned int       // how much of in was looked at
	err     error     // of the body
	out     []byte    // the part of an event that was not read yet
	slim    []byte    // the memory of an event that is slim
	rest    io.Reader // nil before the end of the tap: then what follows
}

// Close implements io.Closer.
func (s *jsonStream) Close() error {
	s.tap.close(s.answer)
	return s.body.Close()
}

// Read implements io.Reader.
func (s *jsonStream) Read(p []byte) (int, error) {
	for len(s.out) == 0 {
		if s.rest != nil {
			return s.rest.Read(p)
		}
		s.next()
	}
	n := copy(p, s.out)
	if s.out = s.out[n:]; len(s.out) == 0 {
		s.out = nil // it may be all that keeps the memory of an event
	}
	return n, nil
}

// idleBuffer is the memory of a stream that waits for its next event.
const idleBuffer = 512

// next sets out to the next event, or rest, or reads more.
func (s *jsonStream) next() {
	// An API server ends each event with a newline, and has none in it. What ends with a
	// brace may be the event of another server.
	isLine := bytes.IndexByte(s.in[s.scanned:], '\n') >= 0
	mayEnd := isLine || s.err != nil || bytes.HasSuffix(s.in, []byte{'}'})
	s.scanned = len(s.in)
	size, ok := 0, len(s.in) <= maxFrame && s.tap.state.Load() == tapped
	if mayEnd && ok {
		size, ok = s.tapEvent()
		ok = ok && (size > 0 || !isLine || len(bytes.TrimSpace(s.in)) == 0)
	}
	switch {
	case !ok:
		s.tap.decline(s.answer)
		s.pass()
	case size > 0:
		s.in, s.scanned = bytes.TrimLeft(s.in[size:], " \t\r\n"), 0
		if len(s.in) == 0 { // hundreds of streams may be idle
			s.in, s.memory, s.slim, s.data = nil, nil, nil, nil
		}
	case s.err != nil:
		s.pass()
	default:
		s.read()
	}
}

// pass ends the tap of this answer: the reader receives what was read, and what follows.
func (s *jsonStream) pass() {
	s.out, s.in, s.rest = s.in, nil, s.body
	if s.err != nil {
		s.rest = failing{s.err}
	}
}

// read reads more of the body.
func (s *jsonStream) read() {
	if cap(s.in)-len(s.in) < idleBuffer/2 {
		if size := 2*len(s.in) + idleBuffer; cap(s.memory) < size {
			s.memory = make([]byte, 0, size)
		}
		s.in = append(s.memory[:0], s.in...)
	}
	var n int
	n, s.err = s.body.Read(s.in[len(s.in):cap(s.in)])
	s.in = s.in[:len(s.in)+n]
}

// tapEvent sets out to what client-go receives for the first event of in, and returns the
// size of the event. The size is 0 if in has only a part of it. ok is false if it cannot
// be tapped.
func (s *jsonStream) tapEvent() (size int, ok bool) {
	kind, object, end := "", 0, 0
	scan := jsonscan.New(s.in)
	for scan.Open('{'); scan.More('}'); {
		switch key := scan.Key(); string(key) {
		case "type":
			kind = string(scan.String())
		case "object":
			scan.Next()
			object = scan.Offset()
			scan.Skip()
			end = scan.Offset()
		default:
			scan.Skip()
		}
	}
	size = scan.Offset()
	switch {
	case !scan.OK():
		return 0, scan.Truncated()
	case object == 0 || size > maxFrame:
		return 0, false
	}
	switch watch.EventType(kind) {
	case watch.Added, watch.Modified, watch.Deleted:
		slim, marked, ok := s.mark(append(s.slim[:0], s.in[:object]...), s.in[object:], kind == string(watch.Deleted))
		if !ok || object+marked != end {
			return 0, false
		}
		s.slim = append(slim, s.in[end:size]...)
		s.out = s.slim
		return size, true
	case watch.Bookmark:
		if rv := jsonObjectRV(s.in[object:end]); rv != "" {
			s.tap.addPoint(s.answer, rv)
		}
	}
	s.out = s.in[:size]
	return size, true
}

// jsonObjectRV returns the resource version of an object, "" if it has none.
func jsonObjectRV(text []byte) (rv string) {
	s := jsonscan.New(text)
	for s.Open('{'); s.More('}'); {
		if key := s.Key(); string(key) == "metadata" && s.Next() == '{' {
			rv = jsonResourceVersion(s)
		} else {
			s.Skip()
		}
	}
	return rv
}
