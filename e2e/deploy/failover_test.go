package deploy_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/store/bolt"
)

// TestFailover checks that a process with the rights of the operator's manifest goes on
// with what another one, which did not end, had left to do.
func TestFailover(t *testing.T) {
	w := newWorld(t)
	var pod *corev1.Pod
	for _, u := range manifests(t)["operator.yaml"] {
		if p, ok := podOf(t, u); ok {
			pod = p
			continue
		}
		w.apply("operator.yaml", u)
	}
	admin := w.clientset("")
	operator := w.clientset(fmt.Sprintf("system:serviceaccount:%s:%s", pod.Namespace, pod.Spec.ServiceAccountName))
	written, err := admin.CoreV1().ConfigMaps(pod.Namespace).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=left"})
	w.must(err)
	defer written.Stop()

	first := w.replica(operator, pod.Namespace)
	want := cache.ObjectName{Namespace: "default", Name: "left"}
	first.queue.Add(want)
	close(first.elected)
	timeout := time.After(2 * time.Minute)
	for modified := false; !modified; { // it is created first
		select {
		case e := <-written.ResultChan():
			modified = e.Type == watch.Modified
		case <-timeout:
			t.Fatalf("what is left was not written: %+v", first.consumer.Status())
		}
	}
	second := w.replica(operator, pod.Namespace)
	close(second.elected)
	got := make(chan cache.ObjectName, 1)
	go func() {
		item, _ := second.queue.Get()
		got <- item
	}()
	select {
	case item := <-got:
		if item != want {
			t.Errorf("the second one works on %v, want %v", item, want)
		}
	case <-timeout:
		t.Errorf("the second one has nothing to do: %+v", second.consumer.Status())
	}
}

// clientset returns a client of a user, or of the administrator.
func (w *world) clientset(user string) kubernetes.Interface {
	w.t.Helper()
	cfg := rest.CopyConfig(w.cp.Config())
	cfg.Impersonate.UserName = user
	http, err := rest.HTTPClientFor(cfg)
	w.must(err)
	w.t.Cleanup(http.CloseIdleConnections)
	client, err := kubernetes.NewForConfigAndClient(cfg, http)
	w.must(err)
	return client
}

// replica is a process of the operator, with a file of its own.
type replica struct {
	consumer *durable.Consumer
	queue    workqueue.TypedRateLimitingInterface[cache.ObjectName]
	elected  chan struct{}
}

// replica begins a process, which waits until elected is closed.
func (w *world) replica(client kubernetes.Interface, namespace string) *replica {
	w.t.Helper()
	r := &replica{elected: make(chan struct{})}
	db, err := bolt.Open(filepath.Join(w.t.TempDir(), "informers.db"), bolt.Options{})
	w.must(err)
	r.consumer, err = durable.Open(db, "widgets", durable.Options{
		Elected: r.elected, Shared: durable.InCluster(client, namespace, "left"),
	})
	w.must(err)
	r.queue = durable.NewQueue(r.consumer, workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName](), durable.ObjectNames)
	w.t.Cleanup(func() {
		r.queue.ShutDown()
		_ = r.consumer.Close() // the first one has been replaced
		if err := db.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return r
}
