package informer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
)

// malformed is what spoil makes of an object whose generateName is "corrupt", by content
// type: what ConfigMap's Go type does not take.
var malformed = map[string]*strings.Replacer{
	runtime.ContentTypeJSON: strings.NewReplacer(`"generateName":"corrupt"`, `"deletionTimestamp":"secret-content"`),
	// The text is as long as a number of 64 bits.
	runtime.ContentTypeProtobuf: strings.NewReplacer("\x12\x07corrupt", "\x11\x07corrupt"),
}

// overSpoiledWire makes the informers of the world speak with a server that sends
// malformed objects. If taken is false, their transport is not the informer's.
func (w *world) overSpoiledWire(contentType string, taken bool) {
	w.Helper()
	cfg := w.server.Config(contentType)
	next := cfg.Transport
	cfg.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err == nil {
			resp.Body = &spoiled{resp.Body, malformed[contentType], nil}
		}
		return resp, err
	})
	if taken {
		informer.TakeEncoded(cfg)
	}
	var err error
	if w.lw, err = fakeapi.ListerWatcher(cfg, corev1.SchemeGroupVersion.WithResource("configmaps")); err != nil {
		w.Fatal(err)
	}
}

// spoiled is a body in which something is replaced. The server writes each event at once.
type spoiled struct {
	io.ReadCloser
	replace *strings.Replacer
	rest    []byte
}

func (s *spoiled) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		b := make([]byte, 1<<20)
		n, err := s.ReadCloser.Read(b)
		if n == 0 {
			return 0, err
		}
		s.rest = []byte(s.replace.Replace(string(b[:n])))
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// putMalformed creates or updates an object that the server sends malformed.
func (w *world) putMalformed(name, data string) {
	w.Helper()
	obj := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, GenerateName: "corrupt"},
		Data:       map[string]string{"v": data},
	}
	if _, err := w.server.Update(obj); err == nil {
		return
	}
	if _, err := w.server.Create(obj); err != nil {
		w.Fatal(err)
	}
}

// failures records what a watch error handler is told.
type failures struct {
	mu   sync.Mutex
	said []string
}

func (f *failures) handle(inf *informer.Informer) {
	_ = inf.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.said = append(f.said, err.Error())
	})
}

// TestMalformedObject checks a collection with an object that the Go type does not take.
// The others are told and kept up to date. That one is reported by its key, keeps its
// last good state, and is told when it is mended or deleted. No error shows its content.
func TestMalformedObject(t *testing.T) {
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		for _, taken := range []bool{true, false} {
			for _, streamed := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/taken=%t/streamed=%t", contentType[12:], taken, streamed), func(t *testing.T) {
					inBubble(t, func(w *world) {
						if !streamed {
							w.server = fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{NoWatchList: true})
						}
						w.overSpoiledWire(contentType, taken)
						testMalformedObject(w, taken, func(inf *informer.Informer) {
							if taken != streamed { // encoded objects are not taken
								_ = inf.SetTransform(func(obj any) (any, error) { return obj, nil })
							}
						})
					})
				})
			}
		}
	}
}

func testMalformedObject(w *world, taken bool, prepare func(*informer.Informer)) {
	w.Helper()
	var l log
	var failed failures
	opts := informer.Options{TransformVersion: "1"}
	w.put("a", "1")
	w.putMalformed("b", "1")
	w.put("c", "1")
	rejected := func(r *run, want ...string) {
		w.Helper()
		if st := r.inf.Status(); !slices.Equal(st.Rejected, want) {
			w.Errorf("rejected %q, want %q", st.Rejected, want)
		}
	}
	r := w.run(opts, prepare, handle(w, &l), failed.handle).sync() // a cold start
	w.want(&l, "initial a@2=1", "initial c@4=1")
	rejected(r, "default/b")

	w.put("a", "2")
	waitFor(time.Minute)
	w.want(&l, "update a@2=1 a@5=2")
	before := len(w.server.Requests())
	w.put("b", "2")
	waitFor(time.Minute)
	w.want(&l, "add b@6=2")
	rejected(r)
	if lists := w.lists(before); len(lists) > 0 {
		w.Errorf("lists after the mend: %q", lists)
	}

	before = len(w.server.Requests())
	w.putMalformed("b", "3")
	w.put("c", "2")
	waitFor(5 * time.Minute)
	w.want(&l, "update c@4=1 c@8=2")
	rejected(r, "default/b")
	if obj, ok, err := r.inf.GetStore().GetByKey("default/b"); err != nil || !ok || describe(obj) != "b@6=2" {
		w.Errorf("held: %v, %t, %v", describe(obj), ok, err)
	}
	if lists := w.lists(before); taken && len(lists) > 0 {
		w.Errorf("lists because of a malformed object: %q", lists)
	}

	if err := w.server.Compact(w.server.RV()); err != nil { // a relist
		w.Fatal(err)
	}
	w.server.Down()
	w.put("a", "3")
	if err := w.server.Compact(w.server.RV()); err != nil {
		w.Fatal(err)
	}
	w.server.Up()
	waitFor(5 * time.Minute)
	w.want(&l, "update a@5=2 a@9=3")
	rejected(r, "default/b")

	w.drop("b") // the server sends it as it was
	waitFor(5 * time.Minute)
	w.want(&l, "delete tombstone b@6=2")
	rejected(r)
	if cp := r.inf.Status().Checkpoint; cp.RV != w.server.RV() {
		w.Errorf("checkpoint %+v, want %s", cp, w.server.RV())
	}
	r.end()

	w.put("a", "4")
	w.putMalformed("b", "4")
	r = w.run(opts, prepare, handle(w, &l), failed.handle).sync() // a warm start
	waitFor(5 * time.Minute)
	if got := l.take(); !contains(got, "a@11=4") || !contains(got, "c@8=2") || len(got) > 3 {
		w.Errorf("after a warm start told %q", got)
	}
	rejected(r, "default/b")
	if st := r.inf.Status(); strings.Contains(st.LastError, "secret-content") || st.Start != "resumed" && taken {
		w.Errorf("start %q, because %q; last error %q", st.Start, st.StartReason, st.LastError)
	}
	r.end()
	for _, said := range failed.said {
		if strings.Contains(said, "secret-content") {
			w.Errorf("an error with an object's content: %s", said)
		}
	}
}

// TestMalformedInPages checks pages of which some have a malformed object: none is listed
// twice, and objects are still taken as the server encodes them.
func TestMalformedInPages(t *testing.T) {
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		inBubble(t, func(w *world) {
			w.server = fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{NoWatchList: true, MaxPage: 10})
			w.overSpoiledWire(contentType, true)
			for i := range 50 {
				w.put(fmt.Sprintf("o%02d", i), "1")
			}
			w.putMalformed("o25", "2")
			w.putMalformed("o49", "2")
			r := w.run(informer.Options{}).sync()
			if st := r.inf.Status(); st.Objects != 48 || !slices.Equal(st.Rejected, []string{"default/o25", "default/o49"}) || st.Lists != 1 {
				w.Errorf("%s: %d objects, rejected %q, %d lists", contentType, st.Objects, st.Rejected, st.Lists)
			}
			r.end()
		})
	}
}

// TestMalformedOrOwnError checks that an error of the ListerWatcher itself is not taken
// for an object that cannot be decoded: what the server sent is not what it would return.
func TestMalformedOrOwnError(t *testing.T) {
	for _, taken := range []bool{true, false} {
		inBubble(t, func(w *world) {
			w.server = fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{NoWatchList: true})
			w.put("a", "1")
			w.overSpoiledWire(runtime.ContentTypeJSON, taken)
			inner := cache.ToListerWatcherWithContext(w.lw)
			w.lw = &cache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
					if _, err := inner.ListWithContext(ctx, opts); err != nil {
						return nil, err
					}
					return nil, errors.New("not today")
				},
				WatchFuncWithContext: inner.WatchWithContext,
			}
			r := w.run(informer.Options{})
			waitFor(time.Minute)
			if st := r.inf.Status(); !strings.Contains(st.LastError, "not today") || st.Objects > 0 {
				w.Errorf("%d objects, last error %q", st.Objects, st.LastError)
			}
			r.end()
		})
	}
}

// TestReplayOfMalformed checks that an object that was malformed and is mended,
// both before the start, does not count as rejected when the watch brings both states
// again, as it does while another object freezes the stored resource version.
func TestReplayOfMalformed(t *testing.T) {
	inBubble(t, func(w *world) {
		w.overSpoiledWire(runtime.ContentTypeJSON, true)
		w.put("a", "1")
		r := w.run(informer.Options{}).sync()
		w.putMalformed("y", "1")
		w.putMalformed("x", "1")
		waitFor(time.Minute)
		w.put("x", "2")
		waitFor(time.Minute)
		if st := r.inf.Status(); !slices.Equal(st.Rejected, []string{"default/y"}) || st.Objects != 2 {
			t.Fatalf("before: %d objects, rejected %q", st.Objects, st.Rejected)
		}
		r.end()

		r = w.run(informer.Options{}).sync()
		waitFor(5 * time.Minute)
		if st := r.inf.Status(); !slices.Equal(st.Rejected, []string{"default/y"}) {
			t.Errorf("after a warm start: rejected %q, want only y", st.Rejected)
		}
		w.drop("y")
		waitFor(time.Hour)
		w.put("a", "2")
		waitFor(time.Hour)
		if st := r.inf.Status(); len(st.Rejected) > 0 || st.Checkpoint.RV != w.server.RV() {
			t.Errorf("all are mended: rejected %q, stored RV %q, want %s", st.Rejected, st.Checkpoint.RV, w.server.RV())
		}
		r.end()
	})
}

// TestMalformedIsLoggedOnce checks that an object which changes all the time and stays
// malformed is logged once, and again when it was mended in between.
func TestMalformedIsLoggedOnce(t *testing.T) {
	inBubble(t, func(w *world) {
		w.overSpoiledWire(runtime.ContentTypeJSON, true)
		var mu sync.Mutex
		logged := 0
		w.logger = funcr.New(func(_, args string) {
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(args, "Object cannot be stored") {
				logged++
			}
		}, funcr.Options{})
		want := func(when string, n int) {
			t.Helper()
			waitFor(time.Minute)
			mu.Lock()
			defer mu.Unlock()
			if logged != n {
				t.Errorf("%s it is logged %d times, want %d", when, logged, n)
			}
			logged = 0
		}
		r := w.run(informer.Options{}).sync()
		w.putMalformed("x", "1")
		want("at first", 1)
		for range 20 {
			w.putMalformed("x", "2")
			waitFor(time.Second)
		}
		want("as it changes", 0)
		w.put("x", "3")
		waitFor(time.Second)
		w.putMalformed("x", "4")
		want("after it was mended", 1)
		r.end()
	})
}
