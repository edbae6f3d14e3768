package soak_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store/bolt"
)

// view is what the handler of one informer was told in this life of the process, folded.
type view struct {
	// mu protects the fields below. changed is signalled when objects have changed.
	mu      sync.Mutex
	changed *sync.Cond
	objects map[string]state
	last    map[string]string // the last resource version of each object that was told of, deleted ones too
	faults  []string          // what broke a guarantee
	told    int
}

func newView() *view {
	v := &view{objects: map[string]state{}, last: map[string]string{}}
	v.changed = sync.NewCond(&v.mu)
	return v
}

// fold checks a notification against what came before, and takes it over.
func (v *view) fold(what string, obj any, check func(key string, s, was state, there bool) string) {
	key, s, err := keyAndState(obj)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.told++
	was, there := v.objects[key]
	fault := ""
	switch {
	case err != nil:
		fault = err.Error()
	default:
		fault = check(key, s, was, there)
	}
	if order, err := resourceversion.CompareResourceVersion(s.RV, v.last[key]); v.last[key] != "" && (err != nil || order < 0 || order == 0 && what != "delete") {
		fault += fmt.Sprintf(" resource version %s after %s", s.RV, v.last[key])
	}
	if fault != "" {
		v.faults = append(v.faults, fmt.Sprintf("%s of %q: %s", what, key, fault))
	}
	if v.last[key], v.objects[key] = s.RV, s; what == "delete" {
		delete(v.objects, key)
	}
	v.changed.Broadcast()
}

// OnAdd implements cache.ResourceEventHandler: one add per object and start.
func (v *view) OnAdd(obj any, _ bool) {
	v.fold("add", obj, func(_ string, _, _ state, there bool) string {
		if there {
			return "it was added before"
		}
		return ""
	})
}

// OnUpdate implements cache.ResourceEventHandler: old is what was last delivered.
func (v *view) OnUpdate(old, obj any) {
	_, before, err := keyAndState(old)
	v.fold("update", obj, func(_ string, _, was state, there bool) string {
		switch {
		case err != nil:
			return err.Error()
		case !there:
			return "it was not added"
		case before != was:
			return fmt.Sprintf("from %v, last delivered was %v", before, was)
		}
		return ""
	})
}

// OnDelete implements cache.ResourceEventHandler.
func (v *view) OnDelete(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	v.fold("delete", obj, func(_ string, s, was state, there bool) string {
		if !there || s.UID != was.UID {
			return "it was not delivered"
		}
		return ""
	})
}

// await blocks until there is an object of that name, or until ctx ends.
func (v *view) await(ctx context.Context, key string) bool {
	defer context.AfterFunc(ctx, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.changed.Broadcast()
	})()
	v.mu.Lock()
	defer v.mu.Unlock()
	for {
		if _, there := v.objects[key]; there || ctx.Err() != nil {
			return there
		}
		v.changed.Wait()
	}
}

// answer is what the child says to a command.
type answer struct {
	Err    string
	Scopes map[string]scope // to "look" and "report"; by collection
	Left   []string         // to "stop": goroutines and descriptors that are left
}

// scope is one informer.
type scope struct {
	Status         informer.Status
	Faults         []string
	Told           int              // notifications
	Handler, Store map[string]state // to "report"
}

// watcher is one running informer with its handler.
type watcher struct {
	*informer.Informer
	view *view
}

// process is the child.
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

// start runs an informer for each collection, made as a controller's are.
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
	ctx, cancel := context.WithCancel(ctx)
	p := &process{watchers: map[string]watcher{}, cancel: cancel, db: db, client: client}
	for _, c := range collections {
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		w := watcher{factory.NewInformer(c.listWatch(client), c.example, 0, indexers).(*informer.Informer), newView()}
		if _, err := w.AddEventHandler(w.view); err != nil {
			cancel()
			return nil, err
		}
		p.watchers[c.name()] = w
		p.running.Go(func() { w.RunWithContext(ctx) })
	}
	return p, nil
}

// patience is how long the informers may take to reach the server's state once nothing is broken any more: they wait up
// to a minute between two tries.
const patience = 150 * time.Second

// await waits until every handler was told of an object and every informer has synced, or says what is missing.
func (p *process) await(ctx context.Context, key string) string {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for name, w := range p.watchers {
		is := w.view.await(ctx, key)
		select {
		case <-w.HasSyncedChecker().Done():
		case <-ctx.Done():
			is = false
		}
		if !is {
			status, err := json.Marshal(w.Status())
			return fmt.Sprintf("%s has not reached the server's state after %v: %s %v", name, patience, status, err)
		}
	}
	return ""
}

// look tells how the informers are.
func (p *process) look() map[string]scope {
	out := map[string]scope{}
	for name, w := range p.watchers {
		s := scope{Status: w.Status()}
		w.view.mu.Lock()
		s.Faults, s.Told = slices.Clone(w.view.faults), w.view.told
		w.view.mu.Unlock()
		out[name] = s
	}
	return out
}

// report is look with what handlers were told and what the lister has.
func (p *process) report() (map[string]scope, error) {
	out := p.look()
	for name, w := range p.watchers {
		s := out[name]
		s.Store = map[string]state{}
		for _, obj := range w.GetIndexer().List() {
			key, is, err := keyAndState(obj.(runtime.Object))
			if err != nil {
				return nil, err
			}
			s.Store[key] = is
		}
		w.view.mu.Lock()
		s.Handler = maps.Clone(w.view.objects)
		w.view.mu.Unlock()
		out[name] = s
	}
	return out, nil
}

func (p *process) stop() error {
	p.cancel()
	p.running.Wait()
	return p.db.Close()
}

// left returns what of goroutines and descriptors is more than before. A connection can be closed once the streams on it
// have ended, which takes a moment.
func (p *process) left(ctx context.Context, before goleak.Option, filesBefore map[string]int) (out []string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
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

// openFiles returns what descriptors stand for. The Go runtime's own, which it makes when first needed, are left out. It
// is empty where there is no /proc.
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
