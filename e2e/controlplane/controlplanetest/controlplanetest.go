// Package controlplanetest starts control planes for tests.
package controlplanetest

import (
	"context"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/informctl/informctl/e2e/controlplane"
)

// Start starts a control plane in a new directory and stops it when the test ends.
func Start(t testing.TB, opts controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	opts.Dir = t.TempDir()
	cp, err := controlplane.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cp
}

// AwaitRights waits until the roles and bindings that were written before are in force:
// the API server's authorizer watches them. It writes one more of each, which give a user
// of its own a right.
func AwaitRights(t testing.TB, cp *controlplane.ControlPlane) {
	t.Helper()
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{GenerateName: "last-"}
	everywhere, err := client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/last"}, Verbs: []string{"get"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	user := everywhere.Name // nobody else has the right
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	_, err = client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: everywhere.Name}, Subjects: subjects,
	}, metav1.CreateOptions{})
	var here *rbacv1.Role
	if err == nil {
		here, err = client.RbacV1().Roles(metav1.NamespaceDefault).Create(t.Context(), &rbacv1.Role{
			ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}}},
		}, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = client.RbacV1().RoleBindings(metav1.NamespaceDefault).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: here.Name}, Subjects: subjects,
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, right := range []authorizationv1.SubjectAccessReviewSpec{
		{User: user, NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/last", Verb: "get"}},
		{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: metav1.NamespaceDefault, Resource: "configmaps", Verb: "get"}},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: right}
		err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
			answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			return err == nil && answer.Status.Allowed, nil //nolint:nilerr // asked again
		})
		if err != nil {
			t.Fatalf("rights are not in force: %v", err)
		}
	}
}
