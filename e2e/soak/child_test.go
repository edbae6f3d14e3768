package soak_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/goleak"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/guarantees"
	"github.com/informctl/informctl/store/bolt"
)

// answer is the child's answer to a command.
type answer struct {
	Err    string
	Scopes map[string]scope // answer to "look" and "report", by collection
	Left   []string         // answer to "stop": goroutines and descriptors that are left
}

// scope is the state of one informer.
type scope struct {
	Status         informer.Status
	Violations     []string
	Told           guarantees.Count
	Handler, Store map[string]guarantees.State // answer to "report"
}

// watcher is one running informer with its handler.
type watcher struct {
	*informer.Informer
	told *guarantees.Recorder
}

// heldFile is the file in which the child finds the objects that the handlers of the last
// child held.
const heldFile = "held.json"

// process is the state of the child.
type process struct {
	watchers map[string]watcher
	cancel   context.CancelFunc
	running  sync.WaitGroup
	db       *bolt.DB
	client   clients
}

func runChild(ctx context.Context, dir string) error {
	logger := klog.Background()
	goroutines, descriptors := goleak.IgnoreCurrent(), openFiles()
	p, err := start(klog.NewContext(ctx, logger), dir)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		command, arg, _ := strings.Cut(commands.Text(), " ")
		a := answer{}
		switch command {
		case "await":
			a.Err = p.await(ctx, arg)
		case "look":
			a.Scopes = p.look()
		case "report":
			a.Scopes, err = p.report()
		case "stop":
			err = p.stop()
			a.Left = p.left(ctx, goroutines, descriptors)
			for name, w := range p.watchers {
				for _, violation := range w.told.Violations() {
					err = errors.Join(err, fmt.Errorf("%s: %w", name, violation))
				}
			}
		}
		if err != nil {
			a.Err = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return err
		}
		if command == "stop" {
			return nil
		}
	}
	return commands.Err()
}

// start runs an informer for each collection, in the way that a controller does.
func start(ctx context.Context, dir string) (*process, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	opts := bolt.Options{Logger: klog.FromContext(ctx)}
	if s := os.Getenv(maxBytes); s != "" {
		if opts.MaxBytes, err = strconv.Atoi(s); err != nil {
			return nil, err
		}
	}
	db, err := bolt.Open(filepath.Join(dir, "disk", "cache", "informers.db"), opts)
	if err != nil {
		return nil, err
	}
	factory, err := informer.NewFactory(db, cfg, informer.FactoryOptions{})
	if err != nil {
		return nil, err
	}
	client, err := newClients(cfg)
	if err != nil {
		return nil, err
	}
	var held map[string]map[string]guarantees.State
	b, err := os.ReadFile(filepath.Join(dir, heldFile))
	if err == nil {
		err = json.Unmarshal(b, &held)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &process{watchers: map[string]watcher{}, cancel: cancel, db: db, client: client}
	for _, c := range collections {
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		w := watcher{factory.NewInformer(c.listWatch(client), c.example, 0, indexers).(*informer.Informer), guarantees.New(held[c.name()])}
		h, err := w.AddEventHandler(w.told)
		if err != nil {
			cancel()
			return nil, err
		}
		w.told.Registered(h)
		p.watchers[c.name()] = w
		p.running.Go(func() { w.RunWithContext(ctx) })
	}
	return p, nil
}

// patience is the time in which the informers must reach the server's state after all
// faults have ended. They wait up to a minute between two attempts.
const patience = 150 * time.Second

// await waits until every handler has received an object and every informer has synced.
// On a timeout it returns a description of what is missing.
func (p *process) await(ctx context.Context, key string) string {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for name, w := range p.watchers {
		err := w.told.Await(ctx, key)
		select {
		case <-w.HasSyncedChecker().Done():
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			status, err := json.Marshal(w.Status())
			return fmt.Sprintf("%s has not reached the server's state after %v: %s %v", name, patience, status, err)
		}
	}
	return ""
}

// look returns the state of the informers.
func (p *process) look() map[string]scope {
	out := map[string]scope{}
	for name, w := range p.watchers {
		s := scope{Status: w.Status(), Told: w.told.Count()}
		for _, violation := range w.told.Violations() {
			s.Violations = append(s.Violations, violation.Error())
		}
		out[name] = s
	}
	return out
}

// report returns the result of look at rest and the objects of handlers and listers. It
// also checks that handlers hold the same objects as the listers.
func (p *process) report() (map[string]scope, error) {
	stored := map[string]map[string]guarantees.State{}
	for name, w := range p.watchers {
		is, err := guarantees.States(w.GetIndexer().List())
		if err != nil {
			return nil, err
		}
		w.told.AtRest(is)
		stored[name] = is
	}
	out := p.look()
	for name, w := range p.watchers {
		s := out[name]
		s.Store, s.Handler = stored[name], w.told.Held()
		out[name] = s
	}
	return out, nil
}

func (p *process) stop() error {
	p.cancel()
	p.running.Wait()
	for _, w := range p.watchers {
		w.told.End()
	}
	return p.db.Close()
}

// left returns the goroutines and descriptors that did not exist before. It waits for a
// moment, because a connection can be closed only after its streams have ended.
func (p *process) left(ctx context.Context, before goleak.Option, filesBefore map[string]int) (out []string) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		utilnet.CloseIdleConnectionsFor(p.client.http.Transport)
		out = nil
		if err := goleak.Find(before); err != nil {
			out = append(out, err.Error())
		}
		for name, n := range openFiles() {
			if n > filesBefore[name] {
				out = append(out, fmt.Sprintf("%d times %s is open, %d before", n, name, filesBefore[name]))
			}
		}
		if len(out) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return out
		}
	}
}

// openFiles returns the names of the open descriptors with their counts. It leaves out
// those of the Go runtime, which are created when first needed. It is empty on systems
// without /proc.
func openFiles() map[string]int {
	out := map[string]int{}
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return out
	}
	for _, link := range links {
		name, err := os.Readlink(link)
		if err != nil || strings.HasPrefix(name, "anon_inode:[event") || strings.HasPrefix(name, "/proc/") {
			continue
		}
		name, _, _ = strings.Cut(name, ":[")
		out[name]++
	}
	return out
}
