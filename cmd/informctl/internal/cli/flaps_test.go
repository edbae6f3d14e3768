package cli_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// states are the states of one object, the last of which a scope has; a change makes the
// next one.
type states []runtime.Object

func (s *states) next(change func(runtime.Object)) {
	obj := (*s)[len(*s)-1].DeepCopyObject()
	change(obj)
	obj.(metav1.Object).SetResourceVersion(fmt.Sprint(10 + len(*s)))
	*s = append(*s, obj)
}

// write writes a scope whose log has the states.
func (s states) write(t *testing.T, db *bolt.DB, scope store.Scope) {
	t.Helper()
	var batches []store.Batch
	for _, obj := range s[1:] {
		rv := obj.(metav1.Object).GetResourceVersion()
		batches = append(batches, store.Batch{RV: rv, Changes: []store.Change{{Object: obj}}})
	}
	writeScopeLog(t, db, scope, s[:1], batches...)
}

// writeFlaps writes a file of which the log is noisy: a rollout whose status changes
// again and again, a node and a Lease with heartbeats, and an Event that happens again.
func writeFlaps(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	web := states{&appsv1.Deployment{ObjectMeta: objectMeta("a", "web", "web")}}
	ready := func(n int32, available corev1.ConditionStatus) func(runtime.Object) {
		return func(obj runtime.Object) {
			d := obj.(*appsv1.Deployment)
			d.Status.ReadyReplicas = n
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: available}}
		}
	}
	web.next(ready(1, corev1.ConditionFalse))
	web.next(ready(2, corev1.ConditionFalse))
	web.next(ready(3, corev1.ConditionTrue))
	web.next(func(obj runtime.Object) { obj.(*appsv1.Deployment).Spec.Replicas = new(int32) })
	web.next(ready(1, corev1.ConditionTrue))
	web.next(func(obj runtime.Object) {
		obj.(*appsv1.Deployment).ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: "Apply"}}
	})
	web.next(ready(2, corev1.ConditionTrue))
	web.write(t, db, store.Scope{Resource: "deployments.apps", Kind: appsv1.SchemeGroupVersion.WithKind("Deployment")})

	worker := node("node-1", "4", "8Gi")
	worker.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	beats := states{worker}
	for range 3 {
		beats.next(func(obj runtime.Object) { beat(obj, len(beats)) })
	}
	beats.next(func(obj runtime.Object) {
		beat(obj, len(beats))
		obj.(*corev1.Node).Status.Conditions[0].Status = corev1.ConditionFalse
	})
	beats.write(t, db, store.Scope{Resource: "nodes", Kind: corev1.SchemeGroupVersion.WithKind("Node")})

	lease := states{&coordinationv1.Lease{ObjectMeta: objectMeta("a", "leader", "")}}
	for range 2 {
		lease.next(func(obj runtime.Object) {
			obj.(*coordinationv1.Lease).Spec.RenewTime = &metav1.MicroTime{Time: now.Add(time.Duration(len(lease)) * time.Second)}
		})
	}
	lease.write(t, db, store.Scope{Resource: "leases.coordination.k8s.io", Kind: coordinationv1.SchemeGroupVersion.WithKind("Lease")})

	event := states{&corev1.Event{ObjectMeta: objectMeta("a", "web.1", ""), Count: 1}}
	for range 3 {
		event.next(func(obj runtime.Object) { obj.(*corev1.Event).Count *= 2 })
	}
	event.write(t, db, store.Scope{Resource: "events", Kind: corev1.SchemeGroupVersion.WithKind("Event")})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// beat says that a node was there so many seconds later.
func beat(obj runtime.Object, seconds int) {
	n := obj.(*corev1.Node)
	n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(now.Add(time.Duration(seconds) * time.Second))
}

// TestHistoryFollowHeartbeats checks that history --follow leaves out heartbeats, and
// says how many there were before it and while it ran.
func TestHistoryFollowHeartbeats(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	writeFlaps(t, path)
	db, _ := hold(t, path)
	w := following(t, "history", "nodes", "--follow", "--db", path)
	if got := w.next(t, 1); !strings.Contains(got, `"True" -> "False"`) {
		t.Errorf("it began with %q", got)
	}
	s := openScope(t, db, store.Scope{Resource: "nodes", Kind: corev1.SchemeGroupVersion.WithKind("Node")})
	obj, _, err := s.Object("node-1")
	if err != nil {
		t.Fatal(err)
	}
	n := obj.(*corev1.Node)
	for i, status := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue} {
		n = n.DeepCopy()
		n.ResourceVersion, n.Status.Conditions[0].Status = fmt.Sprint(20+i), status
		beat(n, 20+i)
		apply(t, s, store.Batch{RV: n.ResourceVersion, Changes: []store.Change{{Object: n}}})
	}
	if got := w.next(t, 1); !strings.Contains(got, `"False" -> "True"`) {
		t.Errorf("then %q", got)
	}
	w.stop()
	for w.Scan() {
		t.Errorf("it ended with %q", w.Text())
	}
	const want = "informctl: 3 updates changed only heartbeat times or managedFields, which -o wide shows\n" +
		"informctl: 1 update changed only heartbeat times or managedFields, which -o wide shows\n"
	if code := <-w.code; code != 0 || w.errs.String() != want {
		t.Errorf("exit code %d, %q, want %q", code, w.errs.String(), want)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
