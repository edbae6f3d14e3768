package published_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/postgres"
	"github.com/informctl/informctl/store"
)

var (
	figures = flag.Bool("figures", false, "measure, in TestFigures")
	pods    = flag.Int("pods", 20_000, "pods of TestFigures")
)

// TestFigures measures first loads, starts and the delay of changes beside the API
// server, three rounds in turn, and prints medians with the least and the greatest.
func TestFigures(t *testing.T) {
	if !*figures {
		t.Skip("it measures for minutes: -figures")
	}
	w := newWorld(t)
	if err := controlplane.Load(t.Context(), w.cp.Config(), controlplane.LoadOptions{Pods: *pods}); err != nil {
		t.Fatal(err)
	}
	all := map[string][]time.Duration{}
	var names []string
	measure := func(name string, d time.Duration) {
		if all[name] == nil {
			names = append(names, name)
		}
		all[name] = append(all[name], d)
	}
	for round := range 3 {
		schema := fmt.Sprintf("round%d", round)
		w.must("postgres", "migrate", "--postgres-schema", schema)
		publisher := w.process("publisher", "publish", "pods", "--postgres-schema", schema)
		began := time.Now()
		publisher.start()
		w.awaitComplete(schema)
		measure("publisher, first load", time.Since(began))
		for _, from := range []string{"API server", "PostgreSQL"} {
			file := filepath.Join(w.dir, fmt.Sprintf("%d-%s.db", round, from[:3]))
			args := []string{"run", "pods", "--once", "--db", file}
			if from == "PostgreSQL" {
				args = append(args, "--postgres", "--postgres-schema", schema)
			}
			for _, start := range []string{"cold", "warm"} {
				began := time.Now()
				cmd := w.must(args...)
				measure("informctl run --once, "+start+", from the "+from, time.Since(began))
				measure("    its processor time, "+start+", from the "+from, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
			}
			_ = os.Remove(file)
		}
		if round == 2 {
			w.delays(schema, measure)
		}
		publisher.kill()
	}
	for _, name := range names {
		slices.Sort(all[name])
		n := len(all[name])
		t.Logf("%-60s %8s  (%s to %s, %d)", name, all[name][n/2].Round(time.Millisecond), all[name][0].Round(time.Millisecond), all[name][n-1].Round(time.Millisecond), n)
	}
}

// must runs a command to its end.
func (w *world) must(args ...string) *exec.Cmd {
	w.Helper()
	cmd := w.command(args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.Fatalf("%v\n%s", err, out)
	}
	return cmd
}

func (w *world) awaitComplete(schema string) {
	w.Helper()
	for done := false; !done; {
		_ = w.ask(func(rows pgx.Rows) error {
			done = true
			return nil
		}, "SELECT FROM "+schema+".scope WHERE complete")
		<-time.After(10 * time.Millisecond)
	}
}

// delays measures how long a change takes from the API server's answer to its writer to
// 20 watches of the database, at 100 changes a second, and to one of the API server.
func (w *world) delays(schema string, measure func(string, time.Duration)) {
	w.Helper()
	db, err := postgres.Open(w.Context(), w.pg.DSN(), postgres.Options{Schema: schema, Listen: true, MaxConns: 20})
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithCancel(w.Context())
	defer cancel()
	var mu sync.Mutex // protects delays
	delays := map[string][]time.Duration{}
	var reading sync.WaitGroup
	read := func(from string, wi watch.Interface) {
		reading.Go(func() {
			for e := range wi.ResultChan() {
				p, ok := e.Object.(*corev1.Pod)
				if !ok || e.Type != watch.Modified {
					continue
				}
				sent, err := strconv.ParseInt(p.Annotations["sent"], 10, 64)
				if err == nil {
					mu.Lock()
					delays[from] = append(delays[from], time.Since(time.Unix(0, sent)))
					mu.Unlock()
				}
			}
		})
	}
	list, err := w.client.CoreV1().Pods("").List(w.Context(), metav1.ListOptions{Limit: 500})
	if err != nil {
		w.Fatal(err)
	}
	opts := metav1.ListOptions{ResourceVersion: list.ResourceVersion}
	direct, err := w.client.CoreV1().Pods("").Watch(ctx, opts)
	if err != nil {
		w.Fatal(err)
	}
	read("the API server", direct)
	for range 20 {
		lw, err := db.ListerWatcher(store.Scope{Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")}, &corev1.Pod{}, postgres.FollowOptions{})
		if err != nil {
			w.Fatal(err)
		}
		wi, err := lw.WatchWithContext(ctx, opts)
		if err != nil {
			w.Fatal(err)
		}
		read("PostgreSQL, 20 watches", wi)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := range 2000 {
		<-tick.C
		p := list.Items[i%len(list.Items)]
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"sent":"%d"}}}`, time.Now().UnixNano())
		if _, err := w.client.CoreV1().Pods(p.Namespace).Patch(w.Context(), p.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			w.Fatal(err)
		}
	}
	<-time.After(2 * time.Second)
	cancel()
	direct.Stop()
	reading.Wait()
	for from, all := range delays {
		slices.Sort(all)
		w.Logf("%d changes from %s", len(all), from)
		measure("100 changes/s to a watch of "+from+", p50", all[len(all)/2])
		measure("100 changes/s to a watch of "+from+", p99", all[len(all)*99/100])
	}
}
