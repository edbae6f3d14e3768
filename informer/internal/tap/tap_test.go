package tap_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/ptr"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/informer/internal/tap"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// roundTripper is a function that is a http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// world is a server of ConfigMaps and a client whose requests are tapped.
type world struct {
	*testing.T
	server *fakeapi.Server
	lw     cache.ListerWatcherWithContext
	others dynamic.ResourceInterface // of another resource, for unstructured objects
	tap    *tap.Tap
	ctx    context.Context
	codec  codec.Codec
}

// jsonUnstructured is the form of a world whose client has unstructured objects, in JSON.
const jsonUnstructured = "unstructured"

// forms are those whose answers are tapped.
var forms = []string{runtime.ContentTypeProtobuf, jsonUnstructured}

// newWorld returns a world of some objects. Its form is jsonUnstructured, or the content
// type of objects with a Go type. between changes the server's answers before they are
// tapped; it may be nil.
func newWorld(t *testing.T, form string, between func(*http.Response)) *world {
	t.Helper()
	w := &world{T: t, server: fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})}
	for i := range 10 {
		w.put(fmt.Sprint("o", i))
	}
	contentType, example := form, runtime.Object(&corev1.ConfigMap{})
	if form == jsonUnstructured {
		contentType, example = runtime.ContentTypeJSON, &unstructured.Unstructured{}
	}
	w.codec = must(codec.For(example))
	w.tap = tap.New(w.codec, corev1.SchemeGroupVersion.WithKind("ConfigMap"), "configmaps", false)
	cfg := w.server.Config(contentType)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil {
				if between != nil {
					between(resp)
				}
				tap.From(r.Context()).Open(r, resp)
			}
			return resp, err
		})
	})
	resource := corev1.SchemeGroupVersion.WithResource("configmaps")
	w.lw = cache.ToListerWatcherWithContext(must(fakeapi.ListerWatcher(cfg, resource)))
	if form == jsonUnstructured {
		client := must(dynamic.NewForConfig(cfg)).Resource(resource)
		w.others = must(dynamic.NewForConfig(cfg)).Resource(corev1.SchemeGroupVersion.WithResource("others"))
		w.lw = &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				return client.List(ctx, opts)
			},
			WatchFuncWithContext: client.Watch,
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w.ctx = w.tap.With(ctx)
	return w
}

func (w *world) put(name string) {
	w.Helper()
	obj := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": name}},
		Data:       map[string]string{"a": strings.Repeat(name, 20)},
	}
	if _, err := w.server.Create(obj); err != nil {
		w.Fatal(err)
	}
}

// list returns the listed objects as the tap's user receives them, decoded.
func (w *world) list() (objects []*corev1.ConfigMap, encoded int, err error) {
	l, err := w.lw.ListWithContext(w.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, 0, err
	}
	err = meta.EachListItem(l, func(obj runtime.Object) error {
		cm, isEncoded, err := w.take(obj)
		if objects = append(objects, cm); isEncoded {
			encoded++
		}
		return err
	})
	return objects, encoded, err
}

func (w *world) take(obj runtime.Object) (cm *corev1.ConfigMap, encoded bool, err error) {
	taken, err := w.tap.Take(obj, false)
	if err != nil {
		return nil, false, err
	}
	o, ok := taken.(*store.EncodedObject)
	if !ok {
		return w.typed(taken), false, nil
	}
	obj, err = w.codec.Decode(o.Data)
	if err != nil {
		w.Fatal(err)
	}
	cm = w.typed(obj)
	if whole, ok := o.Cell.Object(); ok && !cmp.Equal(whole, obj) {
		w.Errorf("differs from what was sent whole: %s", cmp.Diff(obj, whole))
	}
	if o.Name != cm.Name || o.Namespace != cm.Namespace || o.UID != cm.UID || o.ResourceVersion != cm.ResourceVersion {
		w.Errorf("metadata %v of %v", o.ObjectMeta, cm.ObjectMeta)
	}
	return cm, true, nil
}

// typed returns a ConfigMap as the Go type has it.
func (w *world) typed(obj runtime.Object) *corev1.ConfigMap {
	w.Helper()
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj.(*corev1.ConfigMap)
	}
	if gvk := u.GroupVersionKind(); gvk.Kind != "ConfigMap" || gvk.Version != "v1" {
		w.Errorf("kind %s", gvk)
	}
	cm := &corev1.ConfigMap{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, cm); err != nil {
		w.Fatal(err)
	}
	cm.TypeMeta = metav1.TypeMeta{}
	return cm
}

// check checks that the objects are those of the server.
func (w *world) check(what string, got []*corev1.ConfigMap) {
	w.Helper()
	l, err := w.server.ListWithContext(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	var want []*corev1.ConfigMap
	for i := range l.(*corev1.ConfigMapList).Items {
		want = append(want, &l.(*corev1.ConfigMapList).Items[i])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("%s (-server +got):\n%s", what, diff)
	}
}

// initialEvents asks for a streamed list.
var initialEvents = metav1.ListOptions{
	SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
}

// stream returns the objects up to the bookmark that ends a streamed list, or to an
// error.
func (w *world) stream() (objects []*corev1.ConfigMap, encoded int, err error) {
	events, err := w.lw.WatchWithContext(w.ctx, initialEvents)
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		events.Stop()
		for range events.ResultChan() {
		}
	}()
	for e := range events.ResultChan() {
		switch e.Type {
		case watch.Bookmark:
			return objects, encoded, nil
		case watch.Error:
			return objects, encoded, errors.New(e.Object.(*metav1.Status).Message)
		}
		cm, isEncoded, err := w.take(e.Object)
		if err != nil {
			return objects, encoded, err
		}
		if objects = append(objects, cm); isEncoded {
			encoded++
		}
	}
	return objects, encoded, io.EOF
}

func TestTapped(t *testing.T) {
	for _, form := range forms {
		w := newWorld(t, form, func(resp *http.Response) { resp.Body = oneByOne(resp.Body) })
		for range 2 {
			objects, encoded, err := w.list()
			if w.check("list", objects); err != nil || encoded != len(objects) {
				t.Errorf("%s, list: %d of %d encoded, %v", form, encoded, len(objects), err)
			}
			objects, encoded, err = w.stream()
			if w.check("stream", objects); err != nil || encoded != len(objects) {
				t.Errorf("%s, stream: %d of %d encoded, %v", form, encoded, len(objects), err)
			}
		}
	}
}

// oneByOne returns a body that is read byte by byte.
func oneByOne(body io.ReadCloser) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{iotest.OneByteReader(body), body}
}

// TestNotTapped checks answers that are left as they are.
func TestNotTapped(t *testing.T) {
	for what, between := range map[string]func(*http.Response){
		"JSON":       nil,
		"compressed": func(resp *http.Response) { resp.Header.Set("Content-Encoding", "unknown") },
		"metadata":   func(resp *http.Response) { resp.Header.Set("Content-Type", runtime.ContentTypeProtobuf+";as=Table") },
	} {
		contentType := runtime.ContentTypeProtobuf
		if what == "JSON" {
			contentType = runtime.ContentTypeJSON
		}
		w := newWorld(t, contentType, between)
		objects, encoded, err := w.list()
		if w.check(what, objects); err != nil || encoded != 0 {
			t.Errorf("%s: %d encoded, %v", what, encoded, err)
		}
	}
}

// replaceBody replaces the body of answers by what f makes of it.
func replaceBody(f func([]byte) []byte) func(*http.Response) {
	return func(resp *http.Response) {
		body := resp.Body
		resp.Body = struct {
			io.Reader
			io.Closer
		}{&lazily{body, f, nil}, body}
	}
}

// lazily reads all of a body, which has to end, when it is first read.
type lazily struct {
	body io.Reader
	f    func([]byte) []byte
	out  io.Reader
}

func (l *lazily) Read(p []byte) (int, error) {
	if l.out == nil {
		b, err := io.ReadAll(l.body)
		if err != nil {
			return 0, err
		}
		l.out = bytes.NewReader(l.f(b))
	}
	return l.out.Read(p)
}

// TestUnusualMessages checks objects that the codec would write in another way: they are
// decoded, and the tap goes on.
func TestUnusualMessages(t *testing.T) {
	unknown := protowire.AppendString(protowire.AppendTag(nil, 999, protowire.BytesType), "x")
	w := newWorld(t, runtime.ContentTypeProtobuf, replaceBody(func(b []byte) []byte {
		return editItems(t, b, func(i int, item []byte) []byte {
			if i == 3 {
				return append(item, unknown...)
			}
			return item
		})
	}))
	objects, encoded, err := w.list()
	if w.check("list", objects); err != nil || encoded != len(objects)-1 {
		t.Errorf("%d of %d encoded, %v", encoded, len(objects), err)
	}
}

// TestSelfLinks checks a server that sets selfLink: nothing is tapped, nor is it lost.
func TestSelfLinks(t *testing.T) {
	link := protowire.AppendString(protowire.AppendTag(nil, 4, protowire.BytesType), "/api/v1")
	for where, edit := range map[string]func(item []byte) []byte{
		"in the metadata": func(item []byte) []byte {
			metadata, n := protowire.ConsumeBytes(item[1:])
			out := protowire.AppendTag(nil, 1, protowire.BytesType)
			return append(protowire.AppendBytes(out, append(bytes.Clone(metadata), link...)), item[1+n:]...)
		},
		"in other metadata": func(item []byte) []byte {
			return protowire.AppendBytes(protowire.AppendTag(item, 1, protowire.BytesType), link)
		},
	} {
		w := newWorld(t, runtime.ContentTypeProtobuf, replaceBody(func(b []byte) []byte {
			return editItems(t, b, func(_ int, item []byte) []byte { return edit(item) })
		}))
		objects, encoded, err := w.list()
		if err != nil || encoded != 0 || len(objects) != 10 {
			t.Fatalf("%s: %d of %d encoded, %v", where, encoded, len(objects), err)
		}
		for _, cm := range objects {
			if cm.GetSelfLink() != "/api/v1" {
				t.Errorf("%s: selfLink %q", where, cm.GetSelfLink())
			}
			cm.SetSelfLink("")
		}
		w.check(where, objects)
	}
}

// TestUnusualJSON checks unstructured objects that are not encoded from their JSON: they
// come as they were sent, and the tap goes on, or ends without a loss.
func TestUnusualJSON(t *testing.T) {
	for what, row := range map[string]struct {
		metadata string // more of the metadata of one object of three
		items    string // if it is not ""
		link     string // what that object has as its selfLink
		sorted   bool   // the kind stands behind the items
		encoded  int
	}{
		"nothing":            {encoded: 3},
		"a selfLink":         {metadata: `,"selfLink":"/api/v1"`, link: "/api/v1", encoded: 2},
		"a label of null":    {metadata: `,"labels":{"a":null}`, encoded: 2},
		"a member twice":     {metadata: `,"uid":"1","uid":"2"`, encoded: 2},
		"an empty selfLink":  {metadata: `,"selfLink":""`},
		"two selfLinks":      {metadata: `,"selfLink":"a","selfLink":"b"`, link: "b"},
		"a selfLink of null": {metadata: `,"selfLink":null`},
		"no UTF-8":           {metadata: ",\"uid\":\"\xff\""},
		"kinds known late":   {sorted: true},
		"kinds in objects": {sorted: true, encoded: 3, items: `[{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}},` +
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}},{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c"}}]`},
		"another kind": {items: `[{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a"}}]`},
		"another version, unusual": {
			items: `[{"kind":"ConfigMap","apiVersion":"v2","metadata":{"name":"a","labels":{"a":null}}}]`,
		},
		"no items":            {items: `null`},
		"an empty list":       {items: `[ ]`},
		"metadata with space": {metadata: ` , "generation" : 1 `, encoded: 3},
	} {
		items := row.items
		if items == "" {
			items = `[{"metadata":{"name":"a"}},{"metadata":{"name":"b"` + row.metadata + `}, "data":{"}":"{"}} , {"metadata":{"name":"c"}}]`
		}
		w := newWorld(t, jsonUnstructured, replaceBody(func([]byte) []byte {
			list := `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":` + items + `}`
			if row.sorted {
				list = `{"apiVersion":"v1","items":` + items + `,"kind":"ConfigMapList","metadata":{"resourceVersion":"7"}}`
			}
			return []byte(list)
		}))
		w.tap.Begin()
		objects, rv := w.sent("list")
		encoded, names := 0, ""
		for _, obj := range objects {
			taken, err := w.tap.Take(obj, false)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if _, ok := taken.(*store.EncodedObject); ok {
				encoded++
			}
			m := must(meta.Accessor(taken))
			if names += m.GetName(); m.GetName() == "b" && m.GetSelfLink() != row.link {
				t.Errorf("%s: selfLink %q", what, m.GetSelfLink())
			}
		}
		if err := w.tap.Reached(rv); err != nil || encoded != row.encoded || rv != "7" || names != "abc" && row.items == "" {
			t.Errorf("%s: %d encoded of %q at %s, %v", what, encoded, names, rv, err)
		}
	}
}

// TestOtherResource checks a ListerWatcher that lists another resource in between: that
// is not tapped, and what it omits of its own is noticed.
func TestOtherResource(t *testing.T) {
	w := newWorld(t, jsonUnstructured, nil)
	w.tap.Begin()
	objects, rv := w.sent("list")
	others := must(w.others.List(w.ctx, metav1.ListOptions{}))
	for _, u := range others.Items {
		if u.GetSelfLink() != "" || u.GetLabels() == nil {
			t.Errorf("%s is slim", u.GetName())
		}
	}
	for _, obj := range objects[:9] {
		must(w.tap.Take(obj, false))
	}
	if err := w.tap.Reached(rv); !errors.Is(err, tap.ErrChanged) {
		t.Errorf("nine of ten were taken: %v", err)
	}
}

// TestMadeDeletions checks a ListerWatcher that makes deletions of other events, as one
// does that selects by content, of which a slim object has nothing.
func TestMadeDeletions(t *testing.T) {
	for _, form := range forms {
		w := newWorld(t, form, nil)
		objects, _ := w.sent("stream")
		for i, obj := range objects[:9] {
			if _, err := w.tap.Take(obj, i == 8); errors.Is(err, tap.ErrChanged) != (i == 8) {
				t.Errorf("%s, object %d: %v", form, i, err)
			}
		}
	}
}

// TestChangedSlim checks that a member which a ListerWatcher adds to a slim object is
// noticed.
func TestChangedSlim(t *testing.T) {
	for _, path := range [][]string{{"spec"}, {"metadata", "other"}, {"kind"}, {"apiVersion"}} {
		w := newWorld(t, jsonUnstructured, nil)
		objects, _ := w.sent("list")
		for i, obj := range objects[:9] {
			if u := obj.(*unstructured.Unstructured); i == 8 {
				_ = unstructured.SetNestedField(u.Object, "x", path...)
			}
			if _, err := w.tap.Take(obj, false); errors.Is(err, tap.ErrChanged) != (i == 8) {
				t.Errorf("%s of object %d: %v", path, i, err)
			}
		}
	}
}

// editItems changes the items of an encoded list.
func editItems(t *testing.T, b []byte, f func(i int, item []byte) []byte) []byte {
	t.Helper()
	const magic = "k8s\x00"
	fields := func(b []byte, f func(n protowire.Number, v []byte) []byte) (out []byte) {
		for len(b) > 0 {
			n, _, size := protowire.ConsumeTag(b)
			v, used := protowire.ConsumeBytes(b[size:])
			if size < 0 || used < 0 {
				t.Fatal("not understood")
			}
			out = protowire.AppendBytes(protowire.AppendTag(out, n, protowire.BytesType), f(n, bytes.Clone(v)))
			b = b[size+used:]
		}
		return out
	}
	i := -1
	return append([]byte(magic), fields(b[len(magic):], func(n protowire.Number, v []byte) []byte {
		if n != 2 { // runtime.Unknown.raw
			return v
		}
		return fields(v, func(n protowire.Number, v []byte) []byte {
			if n != 2 { // items
				return v
			}
			i++
			return f(i, v)
		})
	})...)
}

// TestBrokenStreams checks watches that end anywhere, and those with an event that is not
// tapped: what is heard of them is the same without a tap.
func TestBrokenStreams(t *testing.T) {
	hear := func(form string, body []byte, opened bool) (string, int, int) {
		w := newWorld(t, form, func(resp *http.Response) {
			_ = resp.Body.Close()
			resp.Body = io.NopCloser(bytes.NewReader(body))
		})
		if !opened {
			w.ctx = w.Context()
		}
		objects, encoded, err := w.stream()
		return fmt.Sprint(err), len(objects), encoded
	}
	for form, body := range map[string][]byte{
		runtime.ContentTypeProtobuf: encodedStream(t), jsonUnstructured: jsonStream,
		// Events without newlines between them are one line.
		jsonUnstructured + " ": bytes.ReplaceAll(jsonStream, []byte("\n"), []byte(" ")),
	} {
		for end := range len(body) + 1 {
			wantErr, want, _ := hear(strings.TrimSpace(form), body[:end], false)
			if gotErr, got, _ := hear(strings.TrimSpace(form), body[:end], true); got != want || gotErr != wantErr {
				t.Errorf("%s, cut after %d of %d bytes: %d objects, %s; without a tap %d, %s", form, end, len(body), got, gotErr, want, wantErr)
			}
		}
	}
	if _, n, encoded := hear(jsonUnstructured, bytes.TrimSpace(jsonStream[:bytes.IndexByte(jsonStream, '\n')]), true); n != 1 || encoded != 1 {
		t.Errorf("an event without a newline: %d objects, %d encoded", n, encoded)
	}
}

// jsonStream is the body of a streamed list of three objects. The type of one stands
// behind it.
var jsonStream = []byte(`{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"1"}}}
{"object":{"apiVersion":"v1","data":{"x":"}\n{"},"kind":"ConfigMap","metadata":{"name":"b","resourceVersion":"2"}},"type":"ADDED"}
{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c","resourceVersion":"3"}}}
{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"3","annotations":{"k8s.io/initial-events-end":"true"}}}}
`)

// encodedStream returns the body of a streamed list of three objects.
func encodedStream(t *testing.T) []byte {
	t.Helper()
	server := fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
	for _, name := range []string{"a", "b", "c"} {
		if _, err := server.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http://x/api/v1/configmaps?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", runtime.ContentTypeProtobuf)
	resp, err := server.Config(runtime.ContentTypeProtobuf).Transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var body []byte
	for range 4 { // with the bookmark
		var head [4]byte
		if _, err := io.ReadFull(resp.Body, head[:]); err != nil {
			t.Fatal(err)
		}
		frame := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(resp.Body, frame); err != nil {
			t.Fatal(err)
		}
		body = append(append(body, head[:]...), frame...)
	}
	return body
}

// TestLargeEvents checks an event that is too large to be marked: it and those after it
// are decoded.
func TestLargeEvents(t *testing.T) {
	for _, form := range forms {
		w := newWorld(t, form, nil)
		if _, err := w.server.Create(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "o5-large"}, Data: map[string]string{"a": strings.Repeat("x", 9<<20)},
		}); err != nil {
			t.Fatal(err)
		}
		objects, encoded, err := w.stream()
		if w.check("stream", objects); err != nil || encoded != 6 {
			t.Errorf("%s: %d of %d encoded, %v", form, encoded, len(objects), err)
		}
	}
}

// TestNotTaken checks a watch whose first objects a ListerWatcher omits, and that has no
// marks behind them: it has an event that is too large, or they are more than a Tap
// keeps. That they were omitted is found out.
func TestNotTaken(t *testing.T) {
	for _, form := range forms {
		for what, size := range map[string][]int{"a large event": {9}, "much": slices.Repeat([]int{7}, 12)} {
			for _, way := range []string{"taken", "reached"} {
				if what == "much" && way == "reached" {
					continue // which is the same, and much
				}
				w := newWorld(t, form, nil)
				for i, mebibytes := range size {
					if _, err := w.server.Create(&corev1.ConfigMap{
						ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", i)},
						Data:       map[string]string{"a": strings.Repeat("x", mebibytes<<20)},
					}); err != nil {
						t.Fatal(err)
					}
				}
				objects, rv := w.sent("stream")
				last := objects[len(objects)-1]
				if must(meta.Accessor(last)).GetSelfLink() != "" {
					t.Errorf("%s, %s: the last object is marked", form, what)
				}
				var err error
				if way == "taken" {
					_, err = w.tap.Take(last, false)
				} else {
					err = w.tap.Reached(rv)
				}
				if !errors.Is(err, tap.ErrChanged) {
					t.Errorf("%s, %s, %s: %v", form, what, way, err)
				}
			}
		}
	}
}

// TestChanged checks objects that are not as they were sent.
func TestChanged(t *testing.T) {
	for what, change := range map[string]func(i int, cm *corev1.ConfigMap){
		"a whole one has other data": func(i int, cm *corev1.ConfigMap) { cm.Data = map[string]string{"a": "b"} },
		"another selfLink":           func(i int, cm *corev1.ConfigMap) { cm.SetSelfLink("") },
		"a slim one has a label": func(i int, cm *corev1.ConfigMap) {
			if i == 8 {
				cm.Labels = map[string]string{"a": "b"}
			}
		},
		"another name": func(i int, cm *corev1.ConfigMap) {
			if i == 8 {
				cm.Name = "b"
			}
		},
	} {
		for _, form := range forms {
			checkChanged(t, form, what, change)
		}
	}
}

func checkChanged(t *testing.T, form, what string, change func(i int, cm *corev1.ConfigMap)) {
	t.Helper()
	w := newWorld(t, form, nil)
	items := must(meta.ExtractList(must(w.lw.ListWithContext(w.ctx, metav1.ListOptions{}))))
	var err error
	for i, obj := range items {
		cm := w.typed(obj)
		change(i, cm)
		if u, ok := obj.(*unstructured.Unstructured); ok {
			cm.SetGroupVersionKind(u.GroupVersionKind())
			u.Object = must(runtime.DefaultUnstructuredConverter.ToUnstructured(cm))
		} else {
			items[i] = cm
		}
		if _, _, err = w.take(obj); err != nil {
			break
		}
	}
	if !errors.Is(err, tap.ErrChanged) {
		t.Errorf("%s, %s: error %v", form, what, err)
	}
	// What was sent before is not trusted, what is sent now is not tapped.
	if _, _, err := w.take(items[9]); what != "another selfLink" && !errors.Is(err, tap.ErrChanged) {
		t.Errorf("%s, %s: then %v", form, what, err)
	}
	objects, encoded, err := w.list()
	if w.check(what, objects); err != nil || encoded != 0 {
		t.Errorf("%s, %s: %d encoded, %v", form, what, encoded, err)
	}
}

// TestOmitted checks objects that are not taken, or not in their order.
func TestOmitted(t *testing.T) {
	all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	for what, row := range map[string]struct {
		taken []int
		as    error
	}{
		"all":           {all, nil},
		"one is not":    {slices.Concat(all[:7], all[8:]), tap.ErrChanged},
		"the last":      {all[:9], tap.ErrChanged},
		"none is":       {nil, tap.ErrChanged},
		"one is twice":  {slices.Concat(all[:7], all[6:]), tap.ErrChanged},
		"two change":    {[]int{0, 1, 2, 3, 4, 5, 7, 6, 8, 9}, tap.ErrChanged},
		"the first one": {all[1:], tap.ErrChanged},
	} {
		for _, way := range []string{"list", "pages", "stream", "list of unstructured", "pages of unstructured", "stream of unstructured"} {
			form := runtime.ContentTypeProtobuf
			way, isUnstructured := strings.CutSuffix(way, " of unstructured")
			if isUnstructured {
				form = jsonUnstructured
			}
			w := newWorld(t, form, nil)
			w.tap.Begin()
			objects, rv := w.sent(way)
			var err error
			for _, i := range row.taken {
				if _, err = w.tap.Take(objects[i], false); err != nil {
					break
				}
			}
			if err == nil {
				err = w.tap.Reached(rv)
			}
			if !errors.Is(err, row.as) || row.as == nil && err != nil {
				t.Errorf("%s, %s, %s: %v", form, way, what, err)
			}
		}
	}
}

// TestOmittedBefore checks that what a session has not taken of an earlier one does not
// count.
func TestOmittedBefore(t *testing.T) {
	for _, form := range forms {
		w := newWorld(t, form, nil)
		for _, way := range []string{"pages", "stream", "list", "stream", "stream"} {
			w.sent(way) // and not taken
			if way != "stream" {
				w.tap.Begin()
			}
		}
		objects, rv := w.sent("stream")
		for _, obj := range objects {
			if _, err := w.tap.Take(obj, false); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.tap.Reached(rv); err != nil {
			t.Error(err)
		}
	}
}

// sent returns what client-go receives, and the resource version that it ends at.
func (w *world) sent(way string) (objects []runtime.Object, rv string) {
	w.Helper()
	if way == "stream" {
		events, err := w.lw.WatchWithContext(w.ctx, initialEvents)
		if err != nil {
			w.Fatal(err)
		}
		defer func() {
			events.Stop()
			for range events.ResultChan() {
			}
		}()
		for e := range events.ResultChan() {
			if e.Type == watch.Bookmark {
				return objects, must(meta.Accessor(e.Object)).GetResourceVersion()
			}
			objects = append(objects, e.Object)
		}
		w.Fatal("the stream has ended")
	}
	opts := metav1.ListOptions{}
	if way == "pages" {
		opts.Limit = 3
	}
	for {
		l, err := w.lw.ListWithContext(w.ctx, opts)
		if err != nil {
			w.Fatal(err)
		}
		objects = append(objects, must(meta.ExtractList(l))...)
		list := must(meta.ListAccessor(l))
		if opts.Continue = list.GetContinue(); opts.Continue == "" {
			return objects, list.GetResourceVersion()
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestPagerBeginsAgain checks that client-go's pager, which lists again when its token
// has expired, omits nothing.
func TestPagerBeginsAgain(t *testing.T) {
	for _, form := range forms {
		w := newWorld(t, form, nil)
		w.tap.Begin()
		p := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			if opts.Continue != "" {
				return nil, apierrors.NewResourceExpired("expired")
			}
			return w.lw.ListWithContext(ctx, opts)
		})
		p.PageSize = 3
		l, _, err := p.List(w.ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, obj := range must(meta.ExtractList(l)) {
			n++
			if _, err := w.tap.Take(obj, false); err != nil {
				t.Fatal(err)
			}
		}
		m, _ := meta.ListAccessor(l)
		if err := w.tap.Reached(m.GetResourceVersion()); err != nil {
			t.Errorf("all %d objects were taken: %v", n, err)
		}
	}
}

// TestMergedWatches checks that a watch which is behind another one omits nothing.
func TestMergedWatches(t *testing.T) {
	for _, form := range forms {
		w := newWorld(t, form, nil)
		a := must(w.lw.WatchWithContext(w.ctx, initialEvents))
		b := must(w.lw.WatchWithContext(w.ctx, initialEvents))
		defer func() {
			for _, s := range []watch.Interface{a, b} {
				s.Stop()
				for range s.ResultChan() {
				}
			}
		}()
		for e := range b.ResultChan() { // and waits in the ListerWatcher
			if e.Type == watch.Bookmark {
				break
			}
		}
		for e := range a.ResultChan() {
			if e.Type == watch.Bookmark {
				m, _ := meta.Accessor(e.Object)
				if err := w.tap.Reached(m.GetResourceVersion()); err != nil {
					t.Error(err)
				}
				break
			}
			if _, err := w.tap.Take(e.Object, false); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestListBesideStream checks that nothing is omitted if one of a list and a streamed
// list that were asked for side by side is not used.
func TestListBesideStream(t *testing.T) {
	for _, used := range []string{"stream", "list"} {
		for _, first := range []string{"stream", "list"} {
			for _, form := range forms {
				w := newWorld(t, form, nil)
				w.tap.Begin()
				events := must(w.lw.WatchWithContext(w.ctx, initialEvents))
				objects, rv := map[string][]runtime.Object{}, ""
				if first == "list" {
					objects["list"], rv = w.sent("list")
				}
				for e := range events.ResultChan() {
					if e.Type == watch.Bookmark {
						break
					}
					objects["stream"] = append(objects["stream"], e.Object)
				}
				if first == "stream" {
					objects["list"], rv = w.sent("list")
				}
				for _, obj := range objects[used] {
					if _, err := w.tap.Take(obj, false); err != nil {
						t.Fatal(err)
					}
				}
				if err := w.tap.Reached(rv); err != nil {
					t.Errorf("the %s is used, the %s was first: %v", used, first, err)
				}
				events.Stop()
				for range events.ResultChan() {
				}
			}
		}
	}
}
