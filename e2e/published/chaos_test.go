package published_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/e2e/controlplane/controlplanetest"
	"github.com/informctl/informctl/e2e/program"
	"github.com/informctl/informctl/postgres/pgtest"
)

var (
	rounds = flag.Int("rounds", 3, "rounds of TestChaos")
	seed   = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the random choices of TestChaos")
)

// world is a control plane, a PostgreSQL, two publishers and two followers.
type world struct {
	*testing.T
	cp      *controlplane.ControlPlane
	pg      *pgtest.Server
	dir     string
	program string
	client  kubernetes.Interface

	names []string // of the config maps, the oldest first; used by changes
	next  int
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, cp: controlplanetest.Start(t, controlplane.Options{}), pg: pgtest.Start(t), dir: t.TempDir(), program: program.Informctl(t)}
	cfg := rest.CopyConfig(w.cp.Config())
	cfg.QPS = -1
	var err error
	if w.client, err = kubernetes.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	if out, err := w.command("postgres", "migrate").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return w
}

func (w *world) process(name string, args ...string) *process {
	p := &process{w: w, name: name, args: args}
	w.Cleanup(p.kill)
	return p
}

// enough is how many config maps there are. Only the oldest are deleted: what comes and
// goes while publishers are stopped, between two commits of a file, is in no log of it.
const enough = 1000

// fill makes the first config maps.
func (w *world) fill() {
	w.Helper()
	for ; w.next < enough; w.next++ {
		w.names = append(w.names, fmt.Sprintf("c%d", w.next))
	}
	var group errgroup.Group
	group.SetLimit(8)
	for _, name := range w.names {
		group.Go(func() error {
			_, err := w.client.CoreV1().ConfigMaps("default").Create(w.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		w.Fatal(err)
	}
}

// changes makes 60 changes a second until the context ends. It returns the names of what
// was deleted: no name is used again.
func (w *world) changes(ctx context.Context, random *rand.Rand) (deleted []string) {
	maps := w.client.CoreV1().ConfigMaps("default")
	tick := time.NewTicker(time.Second / 60)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return deleted
		case <-tick.C:
		}
		var err error
		switch n := random.IntN(10); {
		case n < 2:
			name := fmt.Sprintf("c%d", w.next)
			w.next++
			if _, err = maps.Create(w.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"n": "0"}}, metav1.CreateOptions{}); err == nil {
				w.names = append(w.names, name)
			}
		case n < 4:
			i := random.IntN(enough / 10)
			if err = maps.Delete(w.Context(), w.names[i], metav1.DeleteOptions{}); err == nil {
				deleted = append(deleted, w.names[i])
				w.names = slices.Delete(w.names, i, i+1)
			}
		default:
			name := w.names[random.IntN(len(w.names))]
			_, err = maps.Update(w.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"n": fmt.Sprint(random.IntN(1e9))}}, metav1.UpdateOptions{})
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			w.Errorf("change: %v", err)
			return deleted
		}
	}
}

// equal returns how the database and the files differ from the API server.
func (w *world) equal(files ...string) string {
	list, err := w.client.CoreV1().ConfigMaps("default").List(w.Context(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	want := map[string]string{}
	for _, item := range list.Items {
		want[item.Name] = string(item.UID) + "@" + item.ResourceVersion
	}
	got := map[string]string{}
	if err := w.ask(func(rows pgx.Rows) error {
		var name, state string
		err := rows.Scan(&name, &state)
		got[name] = state
		return err
	}, "SELECT name, uid || '@' || rv FROM informctl.object WHERE namespace = 'default'"); err != nil {
		return err.Error()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return "the database (-server +database):\n" + diff
	}
	for _, file := range files {
		if diff := cmp.Diff(want, w.objects(file)); diff != "" {
			return file + " (-server +file):\n" + diff
		}
	}
	return ""
}

func (w *world) ask(row func(pgx.Rows) error, query string) error {
	conn, err := pgx.Connect(w.Context(), w.pg.DSN())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(w.Context())) }()
	rows, err := conn.Query(w.Context(), query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// awaitEqual waits until all are equal.
func (w *world) awaitEqual(all []*process, files ...string) time.Duration {
	w.Helper()
	began := time.Now()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		diff := w.equal(files...)
		if diff == "" {
			return time.Since(began)
		}
		if time.Since(began) > time.Minute {
			for _, p := range all {
				w.Logf("%s:\n%s", p.name, p.text())
			}
			w.Fatalf("not equal after a minute: %s", diff)
		}
		<-tick.C
	}
}

// TestChaos kills three of two publishers, two followers and PostgreSQL in each round,
// under 60 changes a second. One round stops a publisher instead, until another has
// taken over, and lets it go on. All are equal then, each deletion is told once, and
// nobody lists the API server after the first list.
func TestChaos(t *testing.T) {
	t.Logf("-seed %d", *seed)
	random := rand.New(rand.NewPCG(*seed, 0))
	w := newWorld(t)
	files := []string{filepath.Join(w.dir, "f0.db"), filepath.Join(w.dir, "f1.db")}
	publishers := []*process{w.process("publisher 0", "publish", "configmaps"), w.process("publisher 1", "publish", "configmaps")}
	all := publishers
	for i, file := range files {
		all = append(all, w.process(fmt.Sprintf("follower %d", i), "run", "configmaps", "--postgres", "--db", file, "--history", "24h,1GiB"))
	}
	for _, p := range all {
		p.start()
	}
	w.fill()
	w.awaitEqual(all, files...)
	listed := time.Now()
	var deleted []string
	for round := range *rounds {
		ctx, stop := context.WithCancel(w.Context())
		var changing sync.WaitGroup
		changing.Go(func() { deleted = append(deleted, w.changes(ctx, rand.New(rand.NewPCG(*seed, uint64(round)+1)))...) })
		wait(random)
		if round == 1 {
			// Its connections stay, and whatever locks they have.
			for _, p := range publishers {
				_ = p.cmd.Process.Signal(syscall.SIGSTOP)
				<-time.After(13 * time.Second)
				_ = p.cmd.Process.Signal(syscall.SIGCONT)
			}
		} else {
			w.round(all, random)
		}
		stop()
		changing.Wait()
		t.Logf("round %d: equal after %s", round, w.awaitEqual(all, files...).Round(100*time.Millisecond))
	}
	w.checkDeletions(deleted, files)
	if t.Failed() {
		for _, p := range all {
			t.Logf("%s:\n%s", p.name, p.text())
		}
	}
	requests, err := w.cp.Requests(listed)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		if r.IsList() && r.Resource == "configmaps" && len(r.UserAgent) > 9 && r.UserAgent[:9] == "informctl" {
			t.Errorf("listed: %s", r.URI)
		}
	}
}

func wait(random *rand.Rand) { <-time.After(time.Duration(random.IntN(2000)) * time.Millisecond) }

// round kills three of the processes and PostgreSQL, and starts them again.
func (w *world) round(all []*process, random *rand.Rand) {
	for i, n := range random.Perm(len(all) + 1)[:3] {
		if n == len(all) {
			w.Log("PostgreSQL crashes")
			w.pg.Stop("immediate")
			wait(random)
			w.pg.Up()
			continue
		}
		p := all[n]
		w.Logf("%s is killed", p.name)
		p.kill()
		if i == 1 {
			wait(random)
		}
		p.start()
	}
	wait(random)
}

// checkDeletions checks that the database and the files have each deletion once.
func (w *world) checkDeletions(deleted []string, files []string) {
	w.Helper()
	want := map[string]int{}
	for _, name := range deleted {
		want[name] = 1
	}
	got := map[string]int{}
	if err := w.ask(func(rows pgx.Rows) error {
		var name string
		err := rows.Scan(&name)
		got[name]++
		return err
	}, "SELECT name FROM informctl.change WHERE kind IN ('D', 'U') AND namespace = 'default'"); err != nil {
		w.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("deletions in the database (-made +told):\n%s", diff)
	}
	for _, file := range files {
		// The file has what was changed within a second.
		diff := "never read"
		for range 50 {
			if diff = cmp.Diff(want, w.deletions(file)); diff == "" {
				break
			}
			<-time.After(100 * time.Millisecond)
		}
		if diff != "" {
			w.Errorf("deletions in the log of %s (-made +told):\n%s", filepath.Base(file), diff)
		}
	}
	w.Logf("%d deletions, each told once", len(deleted))
}
