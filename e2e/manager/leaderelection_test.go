package manager_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store/bolt"
)

var leaseFlag = flag.Duration("lease", 15*time.Second, "how long the lease of TestKilledLeader is that runs out by itself")

// TestKilledLeader repeatedly kills a manager that leads or waits to lead while objects
// are deleted. The next manager starts on the same file and cannot lead until the lease
// of the killed one has expired, so its handlers are added long after the informer has
// synced. It must reconcile all objects that any earlier manager reconciled and that were
// deleted since.
func TestKilledLeader(t *testing.T) {
	w := theWorld(t) // not parallel: hundreds of caches would starve the server
	for _, row := range []struct {
		name     string
		lease    time.Duration
		released bool // by the test, to avoid a long wait
	}{
		{name: "runs-out", lease: *leaseFlag},
		{name: "released", lease: 150 * time.Second, released: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			e := &elected{
				world: w, t: t, released: row.released,
				replica: replica{
					File:       filepath.Join(t.TempDir(), "informers.db"),
					Kubeconfig: w.Kubeconfig(), Namespace: "k-" + row.name, Lease: row.lease,
				},
				known: map[string]bool{}, deleted: map[string]bool{}, absent: map[string]bool{},
			}
			e.check()
		})
	}
}

// elected is a replica of a controller that is killed and restarted, and the objects that
// its reconciler has seen.
type elected struct {
	*world
	t        *testing.T
	replica  replica
	released bool
	runs     int

	made     []string        // existing objects in the order of creation
	known    map[string]bool // reconciled while they existed
	absent   map[string]bool // reconciled after their deletion
	mu       sync.Mutex
	deleted  map[string]bool // protected by mu
	deleting sync.WaitGroup
}

func (e *elected) check() {
	e.create(60)
	p := e.start()
	e.lead(p)
	p.await("every object reconciled", func() bool { return len(e.known) == len(e.made) })
	p.stored()
	for range 2 {
		e.killWhileDeleting(p)
		for range 2 { // processes that never lead
			p = e.start()
			e.killWhileDeleting(p)
		}
		p = e.start()
		e.delete(5)
		e.lead(p)
		p.await("every deleted object reconciled", func() bool { return len(e.owed()) == 0 })
		e.create(10)
		p.await("every new object reconciled", func() bool {
			return !slices.ContainsFunc(e.made, func(name string) bool { return !e.known[name] })
		})
		p.stored()
	}
	e.killWhileDeleting(p)
	for run := 2; run <= e.runs; run++ {
		if got := e.lists(e.t, e.agent(run)); len(got) > 0 {
			e.t.Errorf("run %d listed: %s", run, strings.Join(got, "; "))
		}
	}
}

// owed returns the known objects that are deleted but have not been reconciled since.
func (e *elected) owed() (out []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name := range e.deleted {
		if e.known[name] && !e.absent[name] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func (e *elected) create(n int) {
	for range n {
		name := fmt.Sprintf("c-%d", len(e.made)+len(e.deleted))
		e.world.create(e.t, configMap(e.replica.Namespace, name, "1"))
		e.made = append(e.made, name)
	}
}

// delete deletes n objects.
func (e *elected) delete(n int) {
	for range n {
		name := e.made[0]
		e.made = e.made[1:]
		if err := e.direct.Delete(e.t.Context(), configMap(e.replica.Namespace, name, "")); err != nil {
			e.t.Error(err)
		}
		e.mu.Lock()
		e.deleted[name] = true
		e.mu.Unlock()
	}
}

// killWhileDeleting kills a process during deletions. Some deletions happen after its
// end.
func (e *elected) killWhileDeleting(p *process) {
	e.t.Helper()
	e.delete(2)
	half := make(chan struct{})
	e.deleting.Go(func() {
		e.delete(2)
		close(half)
		e.delete(3)
	})
	<-half
	p.kill()
	e.deleting.Wait()
}

func (e *elected) agent(run int) string { return fmt.Sprintf("%s/%d", e.t.Name(), run) }

// start starts a process and returns when its cache has synced. If another process led
// before, it must not lead yet.
func (e *elected) start() *process {
	e.t.Helper()
	e.runs++
	r := e.replica
	r.Agent = e.agent(e.runs)
	env, err := json.Marshal(r)
	if err != nil {
		e.t.Fatal(err)
	}
	p := &process{elected: e, Cmd: exec.CommandContext(e.t.Context(), os.Args[0]), said: make(chan saying)}
	p.Env = append(os.Environ(), replicaVariable+"="+string(env))
	p.Stderr = e.t.Output()
	out, err := p.StdoutPipe()
	if err != nil {
		e.t.Fatal(err)
	}
	if p.in, err = p.StdinPipe(); err != nil {
		e.t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		e.t.Fatal(err)
	}
	go func() {
		defer close(p.said)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var s saying
			if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
				e.t.Errorf("%q: %v", lines.Text(), err)
			}
			p.said <- s
		}
	}()
	e.t.Cleanup(p.kill)
	p.await("the cache synced", func() bool { return p.synced })
	return p
}

// lead returns when a process leads. The lease of the dead leader has then expired or was
// released by the test.
func (e *elected) lead(p *process) {
	e.t.Helper()
	if e.runs > 1 && p.leads {
		e.t.Fatal("it led as soon as it had synced: the test proves nothing")
	}
	if e.released && e.runs > 1 {
		p.pause(2 * time.Second)
		lease := &coordinationv1.Lease{}
		key := client.ObjectKey{Namespace: e.replica.Namespace, Name: leaseName}
		if err := e.direct.Get(e.t.Context(), key, lease); err != nil {
			e.t.Fatal(err)
		}
		lease.Spec.HolderIdentity = nil
		if err := e.direct.Update(e.t.Context(), lease); err != nil {
			e.t.Fatal(err)
		}
	}
	p.await("it leads", func() bool { return p.leads })
}

// process is one run of the replica. Its methods must be called from one goroutine.
type process struct {
	*exec.Cmd
	*elected
	in                    io.WriteCloser
	said                  chan saying // closed when the process has ended
	ended                 bool
	synced, leads, onDisk bool
}

// hear processes a line of output.
func (p *process) hear(s saying) {
	switch s.What {
	case "synced":
		p.synced = true
	case "leads":
		p.leads = true
	case "stored":
		p.onDisk = true
	case "reconciled":
		switch {
		case !s.There && s.Indexed:
			p.t.Errorf("%s is gone, and in the index", s.Name)
		case s.There:
			p.known[s.Name] = true
		default:
			p.absent[s.Name] = true
		}
	default:
		p.t.Errorf("unknown: %+v", s)
	}
}

// await processes output until a condition holds.
func (p *process) await(what string, done func() bool) {
	p.t.Helper()
	patience := time.Minute
	if !p.released {
		patience += p.replica.Lease
	}
	timeout := time.After(patience)
	for !done() {
		select {
		case s, ok := <-p.said:
			if !ok {
				p.t.Fatalf("run %d: the process has ended before: %s", p.runs, what)
			}
			p.hear(s)
		case <-timeout:
			p.t.Fatalf("run %d: not in time: %s; deleted and not reconciled: %q", p.runs, what, p.owed())
		}
	}
}

// pause processes output for some time.
func (p *process) pause(d time.Duration) {
	p.t.Helper()
	over := false
	for end := time.After(d); !over; {
		select {
		case s, ok := <-p.said:
			if !ok {
				p.t.Fatalf("run %d: the process has ended", p.runs)
			}
			p.hear(s)
		case <-end:
			over = true
		}
	}
}

// stored returns when the file contains everything that the process knows.
func (p *process) stored() {
	p.t.Helper()
	p.onDisk = false
	if _, err := fmt.Fprintln(p.in, "store"); err != nil {
		p.t.Fatal(err)
	}
	p.await("everything stored", func() bool { return p.onDisk })
}

// kill kills the process, as a power cut would, and processes its remaining output.
func (p *process) kill() {
	if p.ended {
		return
	}
	p.ended = true
	_ = p.Process.Kill()
	for s := range p.said {
		p.hear(s)
	}
	_ = p.Wait()
}

const (
	// replicaVariable is the environment variable with the task of a child.
	replicaVariable = "INFORMCTL_E2E_REPLICA"
	leaseName       = "killed-leader"
)

// replica is the task of a child: a manager with a cache on a file.
type replica struct {
	File, Kubeconfig, Namespace, Agent string
	Lease                              time.Duration
}

// saying is a line of a child's output: "synced", "leads", "stored", or an object that
// was "reconciled".
type saying struct {
	What, Name     string
	There, Indexed bool // the results of the manager's client by key and by an index
}

func runReplica(ctx context.Context, value string) error {
	var r replica
	if err := json.Unmarshal([]byte(value), &r); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctrl.SetLogger(klog.Background()) // to the test's output
	cfg, err := clientcmd.BuildConfigFromFlags("", r.Kubeconfig)
	if err != nil {
		return err
	}
	cfg.UserAgent = r.Agent
	db, err := bolt.Open(r.File, bolt.Options{})
	if err != nil {
		return err
	}
	factory, err := informer.NewFactory(db, cfg, informer.FactoryOptions{RequireTransport: true})
	if err != nil {
		return err
	}
	var inf *informer.Informer // the only informer, created by IndexField
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Cache: crcache.Options{
			NewInformer: func(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
				inf = factory.NewInformer(lw, example, resync, indexers).(*informer.Informer)
				return inf
			},
			DefaultNamespaces: in(r.Namespace, crcache.Config{}),
		},
		Metrics:        server.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: leaseName, LeaderElectionNamespace: r.Namespace,
		LeaseDuration: &r.Lease, RetryPeriod: new(500 * time.Millisecond),
	})
	if err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.ConfigMap{}, "value", valueOf); err != nil {
		return err
	}
	lines := &lines{out: json.NewEncoder(os.Stdout)}
	err = ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func(
		func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			err := mgr.GetClient().Get(ctx, req.NamespacedName, &corev1.ConfigMap{})
			if client.IgnoreNotFound(err) != nil {
				return reconcile.Result{}, err
			}
			there := !apierrors.IsNotFound(err)
			var list corev1.ConfigMapList
			if err := mgr.GetClient().List(ctx, &list, client.MatchingFields{"value": "1"}); err != nil {
				return reconcile.Result{}, err
			}
			indexed := slices.ContainsFunc(list.Items, func(c corev1.ConfigMap) bool { return c.Name == req.Name })
			return reconcile.Result{}, lines.say(saying{What: "reconciled", Name: req.Name, There: there, Indexed: indexed})
		}))
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(mgr.Start(ctx), db.Close()) }()
	<-inf.HasSyncedChecker().Done()
	if err := lines.say(saying{What: "synced"}); err != nil {
		return err
	}
	go func() {
		<-mgr.Elected()
		_ = lines.say(saying{What: "leads"})
	}()
	// The loop ends when the test has ended.
	for commands := bufio.NewScanner(os.Stdin); commands.Scan(); {
		tick := time.NewTicker(10 * time.Millisecond)
		for commits := inf.Status().Commits; commits.Last.IsZero() || commits.PendingBytes > 0; commits = inf.Status().Commits {
			<-tick.C
		}
		tick.Stop()
		if err := lines.say(saying{What: "stored"}); err != nil {
			return err
		}
	}
	cancel()
	return <-ended
}

// lines serializes the output of several goroutines.
type lines struct {
	mu  sync.Mutex
	out *json.Encoder
}

func (l *lines) say(line any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Encode(line)
}
