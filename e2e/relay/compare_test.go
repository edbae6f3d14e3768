package relay_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// request is a request that both get.
type request struct {
	path   string // with the query
	accept string // "" means JSON
	method string // "" means GET
	body   string // JSON
}

func (r request) String() string {
	return strings.TrimSpace(r.method + " " + r.path + " " + r.accept)
}

// answer is what comes back.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

func (a answer) String() string {
	return fmt.Sprintf("%d %s\n%s", a.code, a.header.Get("Content-Type"), short(a.body))
}

// short returns the begin of a text.
func short(b []byte) string {
	const most = 1200
	if len(b) > most {
		return fmt.Sprintf("%q ... of %d bytes", b[:most], len(b))
	}
	return fmt.Sprintf("%q", b)
}

// ask sends a request and reads the answer to its end.
func (p peer) ask(ctx context.Context, r request) (answer, error) {
	res, err := p.send(ctx, r)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, body}, err
}

func (p peer) send(ctx context.Context, r request) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, p.url+r.path, strings.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	if r.body != "" {
		req.Header.Set("Content-Type", runtime.ContentTypeJSON)
	}
	return p.http.Do(req)
}

// headers are the headers that are compared.
var headers = []string{"Content-Type", "Cache-Control", "Retry-After", "Allow"}

// same compares what both answer to requests.
func (w *world) same(t *testing.T, requests ...request) {
	t.Helper()
	w.sameAtOnce(t, 8, requests) // informctl writes at most each 100 ms for a list
}

// sameAtOnce compares so many answers at once.
func (w *world) sameAtOnce(t *testing.T, limit int, requests []request) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(limit)
	for _, r := range requests {
		g.Go(func() error {
			diff := w.diff(t, r)
			for range 2 { // a watch of one may have ended before it had sent everything
				if diff == "" || !strings.Contains(r.path, "watch=1") {
					break
				}
				diff = w.diff(t, r)
			}
			if diff != "" {
				t.Errorf("%s:\n%s", r, diff)
			}
			return nil
		})
	}
	_ = g.Wait() // there are no errors
}

// diff returns how the answers to a request differ that are not in the table of
// differences; "" means not at all.
func (w *world) diff(t *testing.T, r request) string {
	t.Helper()
	server, relay, err := w.ask(t, r)
	if err != nil {
		return err.Error()
	}
	return unknown(r, server, relay)
}

// ask sends a request to both at once.
func (w *world) ask(t *testing.T, r request) (server, relay answer, err error) {
	t.Helper()
	var g errgroup.Group
	g.Go(func() (err error) { server, err = w.server.ask(t.Context(), r); return err })
	g.Go(func() (err error) { relay, err = w.relay.ask(t.Context(), r); return err })
	return server, relay, g.Wait()
}

// unknown returns how two answers differ that is not in the table of differences.
func unknown(r request, server, relay answer) string {
	found := diff(r, server, relay)
	if found == "" {
		return ""
	}
	if d := differenceOf(r, server, relay); d != nil {
		return d.check(server, relay)
	}
	return found
}

func diff(r request, server, relay answer) string {
	if server.code != relay.code {
		return fmt.Sprintf("the server answers %s\ninformctl %s", server, relay)
	}
	if server.code >= http.StatusBadRequest && strings.Contains(r.accept, "as=") {
		// Where a list is converted, its errors are encoded as the list would be.
		return cmp.Diff(statusOf(server), statusOf(relay))
	}
	for _, name := range headers {
		if a, b := server.header.Get(name), relay.header.Get(name); a != b {
			return fmt.Sprintf("%s: %q, informctl has %q", name, a, b)
		}
	}
	return diffBytes(normal(server), normal(relay))
}

// diffBytes returns where two texts begin to differ.
func diffBytes(a, b []byte) string {
	if bytes.Equal(a, b) {
		return ""
	}
	at := 0
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	part := func(b []byte) string { return fmt.Sprintf("%q", b[max(at-100, 0):min(at+300, len(b))]) }
	return fmt.Sprintf("byte %d of %d and %d: the server has\n%s\ninformctl\n%s", at, len(a), len(b), part(a), part(b))
}

var (
	tooOld = regexp.MustCompile(`(too old resource version: \d+) \(\d+\)`)
	tooNew = regexp.MustCompile(`(Too large resource version: \d+, current): \d+`)
)

// leftOut is what is different in all answers, by design.
var leftOut = []struct {
	why string
	of  *regexp.Regexp
	by  string
}{
	{
		"a list has the resource version up to which informctl has come; it does not count what remains, and its tokens are its own",
		regexp.MustCompile(`"metadata":\{("continue":"[^"]*",?|"resourceVersion":"[^"]*",?|"remainingItemCount":\d+,?)+\}`), `"metadata":{}`,
	},
	{
		"a bookmark is of how far each has come", regexp.MustCompile(`"resourceVersion":"\d+","annotations":\{"k8s.io/initial-events-end":"true"\}`), "initial",
	},
	{
		"the same of a custom resource", regexp.MustCompile(`"annotations":\{"k8s.io/initial-events-end":"true"\},"resourceVersion":"\d+"`), "initial",
	},
	{
		"who sends other bookmarks when does not matter", regexp.MustCompile(`(?m)^\{"type":"BOOKMARK","object":.*"metadata":\{\}.*\n`), "",
	},
	{
		"the oldest resource version that each remembers", tooOld, "$1",
	},
	{
		"how far each has come", tooNew, "$1",
	},
	{
		"the same in YAML", regexp.MustCompile(`(?m)^metadata:\n(  (continue|resourceVersion|remainingItemCount): .*\n)+`), "metadata: {}\n",
	},
}

// leftOutOfTables is what is different in all Tables.
var leftOutOfTables = []struct {
	why string
	of  *regexp.Regexp
	by  string
}{
	{"columns have no descriptions", regexp.MustCompile(`"description":"(?:[^"\\]|\\.)*"`), `"description":""`},
	{"ages are of the moment of the answer; those of all cells are compared in e2e/table", regexp.MustCompile(`\b(\d+[smhdy])+\b`), "1s"},
}

// normal returns a body without what is different by design.
func normal(a answer) []byte {
	contentType := a.header.Get("Content-Type")
	switch {
	case strings.HasPrefix(contentType, protoStream):
		return normalStream(a.body)
	case strings.HasPrefix(contentType, runtime.ContentTypeProtobuf):
		return normalProtobuf(a.body)
	}
	b := a.body
	if contentType == asYAML && bytes.Contains(b, []byte("\nkind: Table\n")) {
		b = asJSONText(b)
	}
	indented := isIndented(b)
	if indented {
		var compact bytes.Buffer
		_ = json.Compact(&compact, b) // it is JSON
		b = compact.Bytes()
	}
	for _, l := range leftOut {
		b = l.of.ReplaceAll(b, []byte(l.by))
	}
	if bytes.Contains(b, []byte(`"kind":"Table"`)) {
		for _, l := range leftOutOfTables {
			b = l.of.ReplaceAll(b, []byte(l.by))
		}
	}
	return fmt.Appendf(b, "indented: %v", indented)
}

// isIndented reports whether a body is JSON for people.
func isIndented(b []byte) bool {
	var out bytes.Buffer
	return bytes.HasPrefix(b, []byte("{\n")) && json.Indent(&out, b, "", "  ") == nil && bytes.Equal(out.Bytes(), b)
}

// normalProtobuf does the same with a message: the first field of a list is its metadata.
func normalProtobuf(b []byte) []byte {
	var u runtime.Unknown
	rest, ok := bytes.CutPrefix(b, []byte("k8s\x00"))
	if !ok || u.Unmarshal(rest) != nil {
		return b
	}
	var m metav1.ListMeta
	rest, ok = metadata(u.Raw, &m)
	if !ok || !strings.HasSuffix(u.Kind, "List") {
		return b
	}
	m.ResourceVersion, m.Continue, m.RemainingItemCount = "", "", nil
	return fmt.Appendf(nil, "%s %s %q %q %v\n%s", u.APIVersion, u.Kind, u.ContentEncoding, u.ContentType, m, rest)
}

// metadata reads the first field of a message, and returns what follows it.
func metadata(message []byte, into interface{ Unmarshal([]byte) error }) (rest []byte, ok bool) {
	number, _, tag := protowire.ConsumeTag(message)
	if number != 1 || tag < 0 {
		return nil, false
	}
	content, n := protowire.ConsumeBytes(message[tag:])
	return message[tag+max(n, 0):], n >= 0 && into.Unmarshal(content) == nil
}

// normalStream does the same with the events of a watch, each behind its length.
func normalStream(b []byte) []byte {
	var out []byte
	for len(b) >= 4 {
		n := binary.BigEndian.Uint32(b)
		frame := b[4:min(4+int(n), len(b))]
		b = b[4+len(frame):]
		out = append(out, normalEvent(frame)...)
	}
	return append(out, b...)
}

func normalEvent(frame []byte) []byte {
	var e metav1.WatchEvent
	var u runtime.Unknown
	if e.Unmarshal(frame) != nil || u.Unmarshal(bytes.TrimPrefix(e.Object.Raw, []byte("k8s\x00"))) != nil {
		return frame
	}
	switch e.Type {
	case string(watch.Error):
		return fmt.Append(nil, statusOf(answer{body: e.Object.Raw}))
	case string(watch.Bookmark):
		var m metav1.ObjectMeta
		rest, ok := metadata(u.Raw, &m)
		if ok && len(m.Annotations) == 0 {
			return nil
		}
		m.ResourceVersion = ""
		return fmt.Appendf(nil, "%s %s %v\n%s", u.APIVersion, u.Kind, m, rest)
	}
	return frame
}

// continueOf returns the token of the next page.
func continueOf(t *testing.T, body []byte) string {
	t.Helper()
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatalf("%v\n%s", err, short(body))
	}
	return list.Continue
}

// statusOf returns the error that an answer is.
func statusOf(a answer) *metav1.Status {
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(a.body, nil, nil)
	status, ok := obj.(*metav1.Status)
	if err != nil || !ok {
		return &metav1.Status{Message: string(a.body)}
	}
	status.TypeMeta = metav1.TypeMeta{}
	status.Message = tooOld.ReplaceAllString(tooNew.ReplaceAllString(status.Message, "$1"), "$1")
	return status
}

// asJSONText returns YAML as JSON.
func asJSONText(b []byte) []byte {
	if out, err := yaml.YAMLToJSON(b); err == nil {
		return out
	}
	return b
}

// content returns what JSON or YAML says, without the kinds of items.
func content(a answer) any {
	var out map[string]any
	if yaml.Unmarshal(a.body, &out) != nil {
		return nil
	}
	items, ok := out["items"].([]any)
	if !ok {
		return out
	}
	delete(out, "metadata")
	for _, item := range items {
		if item, ok := item.(map[string]any); ok {
			delete(item, "kind")
			delete(item, "apiVersion")
		}
	}
	return out
}
