package relayfigures_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/e2e/program"
)

var (
	figures = flag.Bool("figures", false, "measure, in TestFigures")
	pods    = flag.Int("pods", 20_000, "pods")
	rounds  = flag.Int("rounds", 5, "how often lists are measured")
	watches = flag.Int("watches", 100, "watches of all pods")
	rate    = flag.Int("rate", 100, "changes a second, while they watch")
	lasts   = flag.Duration("lasts", 20*time.Second, "how long they watch")
)

// side is a server that is measured.
type side struct {
	name       string
	kubeconfig string
	config     *rest.Config
	client     *http.Client
	pid        int
}

func newSide(t *testing.T, name, kubeconfig string, pid int) *side {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.DisableCompression = true
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &side{name, kubeconfig, config, client, pid}
}

// usage is what a process has taken so far.
type usage struct {
	cpu       float64 // seconds
	anonymous uint64  // bytes
	written   uint64  // bytes
}

func (s *side) usage(t *testing.T) usage {
	t.Helper()
	p, err := procfs.NewProc(s.pid)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := p.Stat()
	if err != nil {
		t.Fatal(err)
	}
	status, err := p.NewStatus()
	if err != nil {
		t.Fatal(err)
	}
	disk, err := p.IO()
	if err != nil {
		t.Fatal(err)
	}
	return usage{stat.CPUTime(), status.RssAnon, disk.WriteBytes}
}

// took is what a request has cost.
type took struct {
	wall, cpu   float64 // seconds
	bytes       int64
	before, top uint64 // anonymous memory
}

// measure does a request, and looks at the memory meanwhile.
func (s *side) measure(t *testing.T, do func() int64) took {
	t.Helper()
	before := s.usage(t)
	done := make(chan struct{})
	var top uint64
	var looks sync.WaitGroup
	looks.Go(func() {
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for {
			top = max(top, s.usage(t).anonymous)
			select {
			case <-ticker.C:
			case <-done:
				return
			}
		}
	})
	began := time.Now()
	n := do()
	wall := time.Since(began).Seconds()
	close(done)
	looks.Wait()
	return took{wall, s.usage(t).cpu - before.cpu, n, before.anonymous, top}
}

func (s *side) get(t *testing.T, path, accept string) []byte {
	t.Helper()
	var b bytes.Buffer
	s.copy(t, path, accept, &b)
	return b.Bytes()
}

func (s *side) copy(t *testing.T, path, accept string, to io.Writer) int64 {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	res, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	n, err := io.Copy(to, res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s of %s: %s, %v", path, s.name, res.Status, err)
	}
	return n
}

const (
	inJSON     = "application/json"
	inProtobuf = "application/vnd.kubernetes.protobuf"
	inTables   = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
)

// pages asks for all pods as kubectl get does, a page of 500 at a time.
func (s *side) pages(t *testing.T) (n int64) {
	t.Helper()
	next := ""
	for {
		b := s.get(t, "/api/v1/pods?limit=500&continue="+url.QueryEscape(next), inTables)
		n += int64(len(b))
		var table struct {
			metav1.ListMeta `json:"metadata"`
		}
		if err := json.Unmarshal(b, &table); err != nil {
			t.Fatal(err)
		}
		if next = table.Continue; next == "" {
			return n
		}
	}
}

// TestFigures measures lists in turn, five rounds, and the delay of changes, and prints
// medians beside each other.
func TestFigures(t *testing.T) {
	if !*figures {
		t.Skip("it measures for minutes: -figures")
	}
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Dir: t.TempDir(), Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cp.Stop() })
	if err := controlplane.Load(t.Context(), cp.Config(), controlplane.LoadOptions{Pods: *pods}); err != nil {
		t.Fatal(err)
	}
	kubectl, err := controlplane.Kubectl(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	db := filepath.Join(t.TempDir(), "informers.db")
	run := serve(t, cp.Kubeconfig(), "Caught up", "run", "pods", "--serve", "--db", db)
	server := newSide(t, "kube-apiserver", cp.Kubeconfig(), cp.APIServerPID())
	relay := newSide(t, "informctl run", db+".kubeconfig", run)
	// The first list writes what has come, and compares.
	relay.get(t, "/api/v1/pods?limit=1", inJSON)
	snapshot := filepath.Join(t.TempDir(), "snapshot.db")
	if out, err := exec.CommandContext(t.Context(), program.Informctl(t), "snapshot", "--db", db, snapshot).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	stored := newSide(t, "informctl serve", snapshot+".serve.kubeconfig", serve(t, "", "Serving", "serve", "--db", snapshot))
	sides := []*side{server, relay, stored}

	all := map[string]map[*side][]took{}
	var names []string
	for range *rounds {
		for _, form := range []struct {
			name string
			do   func(*side) int64
		}{
			{"LIST, protobuf", func(s *side) int64 { return s.copy(t, "/api/v1/pods", inProtobuf, io.Discard) }},
			{"LIST, JSON", func(s *side) int64 { return s.copy(t, "/api/v1/pods", inJSON, io.Discard) }},
			{"Tables of 500, as kubectl", func(s *side) int64 { return s.pages(t) }},
			{"metadata, protobuf", func(s *side) int64 {
				return s.copy(t, "/api/v1/pods", inProtobuf+";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", io.Discard)
			}},
			{"kubectl get pods -A", func(s *side) int64 {
				cmd := exec.CommandContext(t.Context(), kubectl, "get", "pods", "-A", "--kubeconfig", s.kubeconfig)
				cmd.Env = append(os.Environ(), "HOME="+filepath.Dir(db))
				out, err := cmd.Output()
				if err != nil {
					t.Fatal(err)
				}
				return int64(len(out))
			}},
		} {
			if all[form.name] == nil {
				all[form.name] = map[*side][]took{}
				names = append(names, form.name)
			}
			for _, s := range sides {
				all[form.name][s] = append(all[form.name][s], s.measure(t, func() int64 { return form.do(s) }))
			}
		}
	}
	median := func(some []took, of func(took) float64) float64 {
		var values []float64
		for _, one := range some {
			values = append(values, of(one))
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	wall, cpu := func(o took) float64 { return o.wall }, func(o took) float64 { return o.cpu }
	before, top := func(o took) float64 { return float64(o.before) / 1e6 }, func(o took) float64 { return float64(o.top) / 1e6 }
	t.Logf("%-28s %-16s %9s %6s %9s %6s %14s %10s", "", "", "wall", "ratio", "CPU", "ratio", "anonymous MB", "bytes")
	for _, name := range names {
		of := all[name][server]
		for _, s := range sides {
			is := all[name][s]
			t.Logf("%-28s %-16s %8.2fs %6.2f %8.2fs %6.2f %5.0f -> %5.0f %10d", name, s.name, median(is, wall), median(is, wall)/median(of, wall),
				median(is, cpu), median(is, cpu)/median(of, cpu), median(is, before), median(is, top), is[0].bytes)
		}
	}
	for _, s := range []*side{server, relay} {
		delays(t, cp, s, relay)
	}
}

// serve starts informctl and returns its process ID when it has printed a text.
func serve(t *testing.T, kubeconfig, ready string, args ...string) (pid int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program.Informctl(t), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for lines := bufio.NewScanner(stderr); lines.Scan() && !strings.Contains(lines.Text(), ready); {
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	return cmd.Process.Pid
}

var ofVersion = regexp.MustCompile(`"resourceVersion":"(\d+)"`)

// delays measures how long after the server's answer to a change the watches of a side
// hear of it.
func delays(t *testing.T, cp *controlplane.ControlPlane, s, relay *side) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	config := rest.CopyConfig(cp.Config())
	config.QPS, config.Burst = 1000, 1000
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	// A watch from the server's own resource version may begin inside of a commit.
	reader, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	list, err := reader.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: 500})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // protects the fields below
	heard := map[string]time.Time{}
	var late []float64
	var events int
	answered := map[string]time.Time{}
	var all sync.WaitGroup
	for i := range *watches {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.config.Host+"/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion="+list.ResourceVersion, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
		res, err := s.client.Do(r)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("watch %d of %s: %v, %v", i, s.name, res, err)
		}
		all.Go(func() {
			defer func() { _ = res.Body.Close() }()
			lines := bufio.NewReaderSize(res.Body, 64<<10)
			for {
				line, err := lines.ReadSlice('\n')
				if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
					if ctx.Err() == nil {
						t.Errorf("watch %d of %s has ended: %v", i, s.name, err)
					}
					return
				}
				if bytes.HasPrefix(line, []byte(`{"type":"ERROR"`)) {
					t.Errorf("watch %d of %s: %s", i, s.name, line)
				}
				now := time.Now()
				if i%10 != 0 || bytes.HasPrefix(line, []byte(`{"type":"BOOKMARK"`)) {
					continue
				}
				if m := ofVersion.FindSubmatch(line); m != nil {
					mu.Lock()
					events++
					if at, ok := answered[string(m[1])]; ok {
						late = append(late, max(now.Sub(at).Seconds(), 0))
					} else if i == 0 {
						heard[string(m[1])] = now // before the answer
					}
					mu.Unlock()
				}
			}
		})
	}
	before := [2]usage{s.usage(t), relay.usage(t)}
	ticker := time.NewTicker(time.Second / time.Duration(*rate))
	defer ticker.Stop()
	end := time.After(*lasts)
	changes := 0
	var patches sync.WaitGroup
	slots := make(chan struct{}, 8)
loop:
	for {
		select {
		case <-ticker.C:
		case <-end:
			break loop
		}
		pod := &list.Items[changes%len(list.Items)]
		changes++
		n := changes
		slots <- struct{}{}
		patches.Go(func() {
			defer func() { <-slots }()
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"n":"%d"}}}`, n)
			p, err := client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answered[p.ResourceVersion] = time.Now()
			if _, ok := heard[p.ResourceVersion]; ok {
				late = append(late, 0)
			}
		})
	}
	patches.Wait()
	<-time.After(2 * time.Second) // the last commits
	after := [2]usage{s.usage(t), relay.usage(t)}
	cancel()
	all.Wait()
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(late)
	if len(late) == 0 {
		t.Fatalf("%s: nothing was heard", s.name)
	}
	at := func(q float64) float64 { return 1000 * late[int(q*float64(len(late)-1))] }
	t.Logf("%d watches, %d changes in %v at %s: p50 %.0f ms, p90 %.0f ms, p99 %.0f ms; its CPU %.2f s, anonymous %.0f MB; the file is written %.1f KB a change",
		*watches, changes, *lasts, s.name, at(.5), at(.9), at(.99), after[0].cpu-before[0].cpu, float64(after[0].anonymous)/1e6,
		float64(after[1].written-before[1].written)/1000/float64(changes))
}
