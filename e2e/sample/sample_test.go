package sample_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/informctl/informctl/examples/samplecontroller/v1alpha1"
)

// TestSampleController runs the sample before its CRD exists, kills it at bad moments,
// and restarts it with nothing to do.
func TestSampleController(t *testing.T) {
	w := newWorld(t)
	w.apply("rbac.yaml")
	w.mayDelete(true)
	p := w.start()
	p.awaitLog("waiting for crd.yaml")
	p.terminate()
	p = w.start()
	p.awaitLog("waiting for crd.yaml")
	w.apply("crd.yaml")
	w.apply("greeter.yaml")
	cycles := []struct {
		at    watch.EventType
		n     int
		twice bool // kill it again while it catches up
	}{
		{watch.Added, 1, false},
		{watch.Deleted, 1, false},
		{watch.Modified, 2, true},
		{watch.Added, 5, false},
		{watch.Deleted, 3, true},
	}
	for cycle := range cycles {
		w.createStill(cycle)
	}
	w.awaitConverged()
	if lists, _ := w.requests(p); len(lists) == 0 {
		t.Error("the cold start made no list: the test proves nothing")
	}
	w.checkStatus()
	w.checkTaken()
	// A kill within a second of the first list would lose it.
	p.terminate()
	p = w.start()
	p.awaitLog("starting workers")

	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	for cycle, c := range cycles {
		stop := w.killAt(p, c.at, c.n, seed+int64(cycle))
		w.changeWhileDown(cycle)
		p = w.start()
		var log string
		if c.twice {
			p.awaitLog(`"Loaded"`)
			p.kill()
			log = p.log()
			p = w.start()
		}
		p.awaitLog("starting workers")
		stop()
		w.awaitConverged()
		log += p.log()
		for _, name := range []string{"deleted", "again"} {
			if !strings.Contains(log, told(still(cycle, name))) {
				t.Errorf("cycle %d: the deletion of %s while the process was down was not told", cycle, name)
			}
		}
		if lists, _ := w.requests(p); len(lists) > 0 {
			t.Errorf("cycle %d: listed though the server has the history: %v", cycle, lists)
		}
	}
	p = w.checkOrphan(p)
	w.checkQuietRestart(p)
}

// checkStatus checks that a change to the status of a Deployment reaches the status of
// its Greeter.
func (w *world) checkStatus() {
	w.t.Helper()
	ctx := w.t.Context()
	var d appsv1.Deployment
	w.must(w.admin.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "hello"}, &d))
	d.Status.Replicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas = 2, 1, 1
	w.must(w.admin.Status().Update(ctx, &d))
	eventually(w.t, func() string {
		var g v1alpha1.Greeter
		w.must(w.admin.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "hello"}, &g))
		if g.Status.AvailableReplicas == 1 {
			return ""
		}
		return fmt.Sprintf("status has %d available replicas, want 1", g.Status.AvailableReplicas)
	})
}

// checkTaken checks that the controller does not touch a Deployment that it does not own
// and reports it in the status, until that Deployment is deleted.
func (w *world) checkTaken() {
	w.t.Helper()
	ctx := w.t.Context()
	labels := map[string]string{"app": "other"}
	other := deployment("taken")
	other.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	other.Spec.Template.Labels = labels
	other.Spec.Template.Spec.Containers = []corev1.Container{{Name: "other", Image: "other"}}
	w.must(w.admin.Create(ctx, other))
	w.must(w.admin.Create(ctx, greeter("taken")))
	eventually(w.t, func() string {
		var g v1alpha1.Greeter
		w.must(w.admin.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "taken"}, &g))
		applied := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.Applied)
		if applied == nil || applied.Status != metav1.ConditionFalse || applied.Reason != "NameTaken" {
			return fmt.Sprintf("condition is %+v, want False for NameTaken", applied)
		}
		return ""
	})
	var now appsv1.Deployment
	w.must(w.admin.Get(ctx, client.ObjectKeyFromObject(other), &now))
	if diff := cmp.Diff(other.Spec, now.Spec); diff != "" || now.UID != other.UID {
		w.t.Errorf("somebody else's Deployment was changed:\n%s", diff)
	}
	w.must(w.admin.Delete(ctx, other))
	w.awaitConverged()
}

// checkOrphan kills the process after a Greeter's deletion was received and stored, but
// before the Greeter's Deployment could be deleted. The next process does not receive the
// deletion again, but must delete the Deployment.
func (w *world) checkOrphan(p *process) *process {
	w.t.Helper()
	w.must(w.admin.Create(w.t.Context(), greeter("orphaned")))
	w.awaitConverged()
	w.mayDelete(false)
	w.must(w.admin.Delete(w.t.Context(), greeter("orphaned")))
	p.awaitLog("cannot delete resource")
	<-time.After(20 * time.Second) // longer than a deletion waits for its commit
	p.kill()
	w.mayDelete(true)
	p = w.start()
	w.awaitConverged()
	if strings.Contains(p.log(), told("orphaned")) {
		w.t.Error("the deletion was told again: the test proves nothing")
	}
	return p
}

// told is the text that the controller logs when it receives a Greeter's deletion.
func told(name string) string {
	return fmt.Sprintf(`"Greeter was deleted" greeter="%s/%s"`, namespace, name)
}

// mayDelete grants or revokes the right to delete Deployments, and waits until the change
// is effective.
func (w *world) mayDelete(may bool) {
	w.t.Helper()
	var role rbacv1.ClusterRole
	w.must(w.admin.Get(w.t.Context(), types.NamespacedName{Name: "samplecontroller"}, &role))
	for i := range role.Rules {
		if rule := &role.Rules[i]; slices.Contains(rule.Resources, "deployments") {
			rule.Verbs = slices.DeleteFunc(rule.Verbs, func(verb string) bool { return verb == "delete" })
			if may {
				rule.Verbs = append(rule.Verbs, "delete")
			}
		}
	}
	w.must(w.admin.Update(w.t.Context(), &role))
	eventually(w.t, func() string {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: account,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "delete", Group: "apps", Resource: "deployments", Namespace: namespace,
			},
		}}
		w.must(w.admin.Create(w.t.Context(), review))
		if review.Status.Allowed != may {
			return fmt.Sprintf("the right to delete Deployments is %v, want %v", review.Status.Allowed, may)
		}
		return ""
	})
}

// checkQuietRestart checks that a restart with nothing to do makes no lists and no
// writes.
func (w *world) checkQuietRestart(p *process) {
	w.t.Helper()
	p.terminate()
	p = w.start()
	w.must(w.admin.Create(w.t.Context(), greeter("last")))
	w.awaitConverged() // so the controller has processed the existing objects
	lists, writes := w.requests(p)
	if len(lists) > 0 {
		w.t.Errorf("listed: %v", lists)
	}
	want := []string{
		"create /apis/apps/v1/namespaces/default/deployments",
		"update /apis/samplecontroller.informctl.dev/v1alpha1/namespaces/default/greeters/last/status",
	}
	// A status may be written again after a conflict.
	if diff := cmp.Diff(want, slices.Compact(writes)); diff != "" {
		w.t.Errorf("writes (-want +got):\n%s", diff)
	}
	p.terminate()
}
