package tap_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer/internal/tap"
	"github.com/informctl/informctl/store"
)

// send is an answer to a list of a ListerWatcher.
type send struct {
	bodies []string // as client-go logs them
	list   runtime.Object
	err    error
}

const (
	oneBad  = `{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"},"data":{"k":"v"}},{"metadata":{"namespace":"n","name":"b"},"data":["pw"]}]}`
	noneBad = `{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}}]}`
	noName  = `{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":{}}}]}`
)

// TestListFromLog checks lists whose requests do not come through Open: which of them are
// taken apart, and how often they are sent.
func TestListFromLog(t *testing.T) {
	listed := &corev1.ConfigMapList{Items: []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: "listed"}}}}
	bad, own := errors.New("decoding pw"), errors.New("own")
	refused := &url.Error{Op: "Get", Err: errors.New("refused")}
	for name, test := range map[string]struct {
		sends []send   // one for each time it is sent
		want  []string // names; "-" before that of a stand-in
		err   string
	}{
		"one is malformed":       {[]send{{err: bad}, {[]string{oneBad}, nil, bad}}, []string{"a", "-n/b"}, ""},
		"mended meanwhile":       {[]send{{err: bad}, {[]string{noneBad}, listed, nil}}, []string{"listed"}, ""},
		"an error of its own":    {[]send{{err: own}, {[]string{noneBad}, nil, own}}, nil, "own"},
		"one without a name":     {[]send{{err: bad}, {[]string{noName}, nil, bad}}, nil, "an object of the list cannot be decoded as *v1.ConfigMap"},
		"no JSON":                {[]send{{err: own}, {[]string{"{"}, nil, own}}, nil, "own"},
		"several answers":        {[]send{{err: own}, {[]string{oneBad, noneBad}, nil, bad}, {err: own}}, nil, "own"},
		"no answer is logged":    {[]send{{err: own}, {nil, listed, nil}, {err: own}}, nil, "own"},
		"the server is down":     {[]send{{err: refused}, {err: refused}}, nil, "refused"},
		"it goes down meanwhile": {[]send{{err: own}, {nil, nil, refused}, {err: own}, {[]string{oneBad}, nil, bad}}, nil, "own"},
	} {
		s := tap.NewStandIns(&corev1.ConfigMap{})
		sent := 0
		list := func() (runtime.Object, error) {
			return s.List(klog.NewContext(t.Context(), klog.Logger{}), func(ctx context.Context) (runtime.Object, error) {
				if sent == len(test.sends) {
					t.Fatalf("%s: sent too often", name)
				}
				now := test.sends[sent]
				sent++
				for _, body := range now.bodies {
					klog.FromContext(ctx).V(8).Info("Response Body", "body", body)
				}
				return now.list, now.err
			})
		}
		got, err := list()
		if (err == nil) != (test.err == "") || err != nil && !strings.HasSuffix(err.Error(), test.err) {
			t.Errorf("%s: error %v, want %q", name, err, test.err)
		}
		if err == nil && !slices.Equal(names(t, s, got), test.want) {
			t.Errorf("%s: got %q, want %q", name, names(t, s, got), test.want)
		}
		if sent < len(test.sends) { // the next list
			_, _ = list()
		}
		if sent != len(test.sends) {
			t.Errorf("%s: sent %d times, want %d", name, sent, len(test.sends))
		}
	}
}

// names returns the names of listed objects, and the keys of stand-ins behind a "-".
func names(t *testing.T, s *tap.StandIns, list runtime.Object) (names []string) {
	t.Helper()
	if list == nil {
		return nil
	}
	err := meta.EachListItem(list, func(obj runtime.Object) error {
		refused := s.Refused(obj)
		if refused == nil {
			names = append(names, obj.(*corev1.ConfigMap).Name)
			return nil
		}
		var bad *store.ObjectError
		if !errors.As(refused, &bad) || strings.Contains(refused.Error(), "pw") {
			t.Errorf("refused with %v", refused)
			return nil
		}
		names = append(names, "-"+bad.Key)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return names
}

// TestDumpedList checks a list in protobuf, which client-go logs as a dump of any length.
func TestDumpedList(t *testing.T) {
	for length := range 20 {
		list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []corev1.ConfigMap{
			{ObjectMeta: metav1.ObjectMeta{Name: "a" + strings.Repeat("a", length)}}, {ObjectMeta: metav1.ObjectMeta{Name: "b", GenerateName: "corrupt"}},
		}}
		body := bytes.Replace(encodedList(t, list), []byte("\x12\x07corrupt"), []byte("\x11\x07corrupt"), 1)
		s := tap.NewStandIns(&corev1.ConfigMap{})
		got, err := s.List(t.Context(), func(ctx context.Context) (runtime.Object, error) {
			klog.FromContext(ctx).V(8).Info("Response Body", "body", hex.Dump(body))
			return nil, errors.New("proto: wrong wire type")
		})
		if want := []string{list.Items[0].Name, "-b"}; err != nil || !slices.Equal(names(t, s, got), want) {
			t.Fatalf("got %q, %v, want %q", names(t, s, got), err, want)
		}
		if rv := got.(*metav1.List).ResourceVersion; rv != "7" {
			t.Errorf("resource version %q", rv)
		}
	}
}

func encodedList(t *testing.T, list *corev1.ConfigMapList) []byte {
	t.Helper()
	message, err := list.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	unknown := &runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, Raw: message}
	envelope, err := unknown.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), envelope...)
}

// TestStandInStreams checks that a watch which is cut anywhere, and one with an event
// that is too large, are the same with a StandIns that has nothing to replace.
func TestStandInStreams(t *testing.T) {
	s := tap.NewStandIns(&corev1.ConfigMap{})
	through := func(contentType string, body []byte) ([]byte, error) {
		resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(bytes.NewReader(body))}
		s.Open(resp)
		return io.ReadAll(resp.Body)
	}
	if s.Start() {
		t.Error("started before an answer came through")
	}
	if got, err := through(runtime.ContentTypeJSON, []byte("x")); err != nil || string(got) != "x" {
		t.Errorf("before its start: %q, %v", got, err)
	}
	if !s.Start() {
		t.Error("not started")
	}
	body := encodedStream(t)
	large := binary.BigEndian.AppendUint32(bytes.Clone(body), 9<<20)
	large = append(append(large, make([]byte, 9<<20)...), body...)
	for _, body := range [][]byte{body, large} {
		step := max(1, len(body)/50)
		for end := 0; end <= len(body); end += step {
			if got, err := through(runtime.ContentTypeProtobuf+";stream=watch", body[:end]); err != nil || !bytes.Equal(got, body[:end]) {
				t.Fatalf("cut after %d of %d bytes: %d, %v", end, len(body), len(got), err)
			}
		}
	}
	for _, body := range []string{"", "{", "[]", `{"items":{}}`, `{"items":[1,"x",null]}`, noneBad, noName} {
		if got, err := through(runtime.ContentTypeJSON, []byte(body)); err != nil || string(got) != body {
			t.Errorf("%s: %q, %v", body, got, err)
		}
	}
	for _, body := range [][]byte{nil, []byte("k8s\x00"), []byte("k8s\x00\xff"), encodedList(t, &corev1.ConfigMapList{}), protowire.AppendVarint(nil, 7)} {
		if got, err := through(runtime.ContentTypeProtobuf, body); err != nil || !bytes.Equal(got, body) {
			t.Errorf("%q: %q, %v", body, got, err)
		}
	}
}

// TestLimitedList checks that a list which client-go's rate limiter has refused is not
// taken for one that cannot be decoded: the next one is taken apart.
func TestLimitedList(t *testing.T) {
	limited := fmt.Errorf("client rate limiter Wait returned an error: %w", errors.New("rate: Wait(n=1) would exceed context deadline"))
	s := tap.NewStandIns(&corev1.ConfigMap{})
	sent := 0
	_, err := s.List(t.Context(), func(context.Context) (runtime.Object, error) { sent++; return nil, limited })
	if !errors.Is(err, limited) || sent != 1 {
		t.Errorf("the list was sent %d times: %v", sent, err)
	}
	_, err = s.List(klog.NewContext(t.Context(), klog.Logger{}), func(ctx context.Context) (runtime.Object, error) {
		klog.FromContext(ctx).V(8).Info("Response Body", "body", oneBad)
		return nil, errors.New("decoding")
	})
	if err != nil {
		t.Errorf("a malformed list behind it was not taken apart: %v", err)
	}
}

// TestCutList checks that a list whose stream is reset in the middle, as over HTTP/2, is
// not sent again at once as one that cannot be decoded: it is an error of the connection.
func TestCutList(t *testing.T) {
	for _, http2 := range []bool{true, false} {
		var requests atomic.Int32
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[`))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}))
		server.EnableHTTP2 = http2
		server.StartTLS()
		defer server.Close()
		cfg := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, APIPath: "/api"}
		if !http2 {
			cfg.NextProtos = []string{"http/1.1"}
		}
		gv := corev1.SchemeGroupVersion
		cfg.GroupVersion, cfg.NegotiatedSerializer = &gv, scheme.Codecs.WithoutConversion()
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(r)
				if err == nil {
					tap.StandInsFrom(r.Context()).Open(resp)
				}
				return resp, err
			})
		})
		client, err := rest.RESTClientFor(cfg)
		if err != nil {
			t.Fatal(err)
		}
		s := tap.NewStandIns(&corev1.ConfigMap{})
		_, err = s.List(klog.NewContext(t.Context(), klog.Logger{}), func(ctx context.Context) (runtime.Object, error) {
			return client.Get().Resource("configmaps").Do(ctx).Get()
		})
		if err == nil || requests.Load() != 1 {
			t.Errorf("HTTP/2 %t: %d requests, want 1; %v", http2, requests.Load(), err)
		}
	}
}
