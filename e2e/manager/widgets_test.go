package manager_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/durable/controllerruntime"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store/bolt"
)

// widgetsVariable is the environment variable with the task of a child that is a
// controller of widgets.
const widgetsVariable = "INFORMCTL_E2E_WIDGETS"

// widgets is the task of a child: a manager with a durable controller of widgets, which
// own pods.
type widgets struct {
	File, Kubeconfig, Namespace string
	Unchanged                   durable.Policy
	Every                       time.Duration
	// Work is how long a reconcile takes. Those of widgets that were edited to "later"
	// ask to be called after Later, unless it is 0, and those of "failing" fail if Fails.
	Work, Later time.Duration
	Fails       bool
}

// work is a line of a child's output: a reconcile that ends.
type work struct {
	Name     string
	Edited   string // the last edit that it has seen
	Failures int    // before it
	Begun    time.Time
	At       time.Time // when it ends
}

// runWidgets runs a controller until the end of its input.
func runWidgets(ctx context.Context, value string) error {
	var t widgets
	if err := json.Unmarshal([]byte(value), &t); err != nil {
		return err
	}
	ctrl.SetLogger(klog.Background()) // to the test's output
	cfg, err := clientcmd.BuildConfigFromFlags("", t.Kubeconfig)
	if err != nil {
		return err
	}
	if err := testobjects.AddToScheme(scheme.Scheme); err != nil {
		return err
	}
	db, err := bolt.Open(t.File, bolt.Options{})
	if err != nil {
		return err
	}
	factory, err := informer.NewFactory(db, cfg, informer.FactoryOptions{RequireTransport: true})
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Metrics: server.Options{BindAddress: "0"},
		Cache:   crcache.Options{NewInformer: factory.NewInformer, DefaultNamespaces: in(t.Namespace, crcache.Config{})},
	})
	if err != nil {
		return err
	}
	consumer, err := durable.Open(db, "widgets", durable.Options{Version: "1", Unchanged: t.Unchanged, Every: t.Every})
	if err != nil {
		return err
	}
	r := &widgetReconciler{widgets: t, Client: mgr.GetClient(), lines: lines{out: json.NewEncoder(os.Stdout)}}
	newQueue := controllerruntime.NewQueue(consumer)
	err = ctrl.NewControllerManagedBy(controllerruntime.Manager(consumer, mgr)).
		For(&testobjects.TypedWidget{}).Owns(&corev1.Pod{}).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: reconcilers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](500*time.Millisecond, time.Hour),
			NewQueue: func(name string, l workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
				r.queue = newQueue(name, l)
				return r.queue
			},
		}).Complete(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return errors.Join(mgr.Start(ctx), consumer.Close(), db.Close())
}

// widgetReconciler reconciles widgets by saying so.
type widgetReconciler struct {
	widgets
	client.Client
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	lines lines
}

func (r *widgetReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	begun := time.Now()
	var w testobjects.TypedWidget
	if err := r.Get(ctx, req.NamespacedName, &w); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	edited := w.Annotations[editedAnnotation]
	<-time.After(r.Work)
	err := r.lines.say(work{Name: req.Name, Edited: edited, Failures: r.queue.NumRequeues(req), Begun: begun, At: time.Now()})
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case edited == "later":
		return reconcile.Result{RequeueAfter: r.Later}, nil
	case edited == "failing" && r.Fails:
		return reconcile.Result{}, errors.New("the widget is to fail")
	}
	return reconcile.Result{}, nil
}

// widgetController is a running child.
type widgetController struct {
	*tally
	cmd  *exec.Cmd
	in   io.Closer
	done []work        // tally.mu protects it
	over chan struct{} // closed when it has ended
}

func (t widgets) start(test *testing.T) *widgetController {
	test.Helper()
	env, err := json.Marshal(t)
	if err != nil {
		test.Fatal(err)
	}
	c := &widgetController{tally: newTally(test), cmd: exec.CommandContext(test.Context(), os.Args[0]), over: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), widgetsVariable+"="+string(env))
	c.cmd.Stderr = test.Output()
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		test.Fatal(err)
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		test.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		test.Fatal(err)
	}
	go func() {
		defer close(c.over)
		for said := bufio.NewScanner(out); said.Scan(); {
			var w work
			if err := json.Unmarshal(said.Bytes(), &w); err != nil {
				test.Errorf("%q: %v", said.Text(), err)
			}
			c.mu.Lock()
			c.done = append(c.done, w)
			c.mu.Unlock()
			c.add(w.Name)
		}
	}()
	test.Cleanup(func() { _ = c.cmd.Process.Kill() })
	return c
}

// stop stops the child as SIGTERM does.
func (c *widgetController) stop() {
	c.Helper()
	_ = c.in.Close()
	<-c.over
	if err := c.cmd.Wait(); err != nil {
		c.Error(err)
	}
}

// kill kills the child, as a power cut would.
func (c *widgetController) kill() {
	_ = c.cmd.Process.Kill()
	<-c.over
	_ = c.cmd.Wait()
}

// works returns what it has done so far, in order.
func (c *widgetController) works() []work {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done[:len(c.done):len(c.done)]
}

// await waits until a condition holds.
func (c *widgetController) await(what string, holds func([]work) bool) {
	c.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(2 * time.Minute); !holds(c.works()); <-tick.C {
		if time.Now().After(end) {
			c.Fatalf("not in time: %s", what)
		}
	}
}
