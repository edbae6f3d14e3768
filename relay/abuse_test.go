package relay

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/informctl/informctl/store"
)

// maxHeap is what the lists of a page of abuse may hold together, in bytes.
const maxHeap = 256 << 20

// TestHeapUnderAbuse has as many clients as are let in ask for everything in each form,
// and stop reading. What is held for them is bounded, and one more is refused.
func TestHeapUnderAbuse(t *testing.T) {
	// A slow machine takes long until all have begun, and the first ones do not read on.
	patience := writePatience
	writePatience = 10 * time.Minute
	t.Cleanup(func() { writePatience = patience })
	_, config := serving(t, file(t, 800), Options{}, filepath.Join(t.TempDir(), "kubeconfig"))
	config.NextProtos = []string{"http/1.1"} // a connection each
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	forms := []struct{ query, accept string }{
		{"", "application/json"},
		{"", "application/vnd.kubernetes.protobuf"},
		{"", "application/json;as=Table;g=meta.k8s.io;v=v1"},
		{"?includeObject=Object", "application/json;as=Table;g=meta.k8s.io;v=v1"},
		{"", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"},
		{"", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"},
		{"?limit=1000000", "application/json"},
		{"?fieldSelector=status.phase%21%3DFailed", "application/json"},
		{"?resourceVersion=1000&resourceVersionMatch=Exact", "application/json"},
	}
	runtime.GC()
	var before, during runtime.MemStats
	runtime.ReadMemStats(&before)
	var begun, ended sync.WaitGroup
	begun.Add(maxLists)
	drain := make(chan struct{})
	for i := range maxLists {
		form := forms[i%len(forms)]
		ended.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/api/v1/pods"+form.query, nil)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Accept", form.accept)
			res, err := c.Do(r)
			if err != nil {
				t.Error(err)
				begun.Done()
				return
			}
			defer func() { _ = res.Body.Close() }()
			body := bufio.NewReaderSize(res.Body, 16)
			if _, err := body.ReadByte(); err != nil || res.StatusCode != 200 {
				t.Errorf("%v: %d, %v", form, res.StatusCode, err)
			}
			begun.Done()
			<-drain
			if _, err := io.Copy(io.Discard, body); err != nil {
				t.Errorf("%v: %v", form, err)
			}
		})
	}
	begun.Wait()
	runtime.GC()
	runtime.ReadMemStats(&during)
	status, _ := ask(t, c, config, "GET", "/api/v1/pods", nil)
	close(drain)
	ended.Wait()
	held := int64(during.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d lists that nobody reads hold %d MiB", maxLists, held>>20)
	if held > maxHeap {
		t.Errorf("lists hold %d bytes, want %d at most", held, maxHeap)
	}
	if status != http.StatusTooManyRequests {
		t.Errorf("one list more is answered with %d, want 429", status)
	}
}

// slowly is a Reader whose pages but the first are long in coming.
type slowly struct {
	store.Store
	wait time.Duration
}

func (r slowly) Select(q store.Query) ([]store.Entry, error) {
	if q.After != "" {
		<-time.After(r.wait)
	}
	return r.Store.Select(q)
}

// TestPatience lists with little time for what is written: a list that is slow here
// arrives whole, one that its client does not read is broken off.
func TestPatience(t *testing.T) {
	patience := writePatience
	writePatience = 5 * time.Second // a client that reads may not be run for a while
	t.Cleanup(func() { writePatience = patience })
	for _, test := range []struct {
		name  string
		pods  int
		slow  time.Duration // between two pages
		rests bool          // the client, until the server has ended the list
		whole bool
	}{
		{"slow here", pageSize + 1, writePatience + time.Second, false, true},
		{"slow client", 1200, 0, true, false},
	} {
		from := file(t, test.pods)
		from[0].Reader = slowly{from[0].Reader.(store.Store), test.slow}
		s, _, config := servingServer(t, from, Options{}, filepath.Join(t.TempDir(), "kubeconfig"))
		for _, protocol := range []string{"h2", "http/1.1"} {
			t.Run(test.name+", "+protocol, func(t *testing.T) {
				config := rest.CopyConfig(config)
				config.NextProtos = []string{protocol}
				c, err := rest.HTTPClientFor(config)
				if err != nil {
					t.Fatal(err)
				}
				defer c.CloseIdleConnections()
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/api/v1/pods?fieldSelector=status.phase%21%3DNone", nil)
				if err != nil {
					t.Fatal(err)
				}
				res, err := c.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = res.Body.Close() }()
				for end := time.Now().Add(time.Minute); test.rests && len(s.lists) > 0 && time.Now().Before(end); {
					<-time.After(10 * time.Millisecond)
				}
				b, err := io.ReadAll(res.Body)
				if whole := err == nil && json.Valid(b); whole != test.whole {
					t.Errorf("%s: %d bytes, %v, want a whole list: %v", res.Proto, len(b), err, test.whole)
				}
			})
		}
	}
}
