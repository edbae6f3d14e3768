package table

import (
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
)

var (
	role        = kindOf(roleCells, always("Name"), ofType("date", always("Created At")))
	clusterRole = kindOf(clusterRoleCells, always("Name"), ofType("date", always("Created At")))
)

func roleCells(r *rbacv1.Role, _ time.Time) []any {
	return []any{r.Name, createdAt(r.CreationTimestamp)}
}

func clusterRoleCells(r *rbacv1.ClusterRole, _ time.Time) []any {
	return []any{r.Name, createdAt(r.CreationTimestamp)}
}

var (
	roleBinding        = kindOf(roleBindingCells, always("Name", "Role", "Age"), wide("Users", "Groups", "ServiceAccounts"))
	clusterRoleBinding = kindOf(clusterRoleBindingCells, always("Name", "Role", "Age"), wide("Users", "Groups", "ServiceAccounts"))
)

func roleBindingCells(b *rbacv1.RoleBinding, now time.Time) []any {
	users, groups, accounts := subjects(b.Subjects)
	return []any{b.Name, roleRef(b.RoleRef), age(b.CreationTimestamp, now), users, groups, accounts}
}

func clusterRoleBindingCells(b *rbacv1.ClusterRoleBinding, now time.Time) []any {
	users, groups, accounts := subjects(b.Subjects)
	return []any{b.Name, roleRef(b.RoleRef), age(b.CreationTimestamp, now), users, groups, accounts}
}

func roleRef(r rbacv1.RoleRef) string { return r.Kind + "/" + r.Name }

// subjects returns the cells of the subjects that a binding gives a role.
func subjects(all []rbacv1.Subject) (users, groups, accounts string) {
	var u, g, a []string
	for _, s := range all {
		switch s.Kind {
		case rbacv1.UserKind:
			u = append(u, s.Name)
		case rbacv1.GroupKind:
			g = append(g, s.Name)
		case rbacv1.ServiceAccountKind:
			a = append(a, s.Namespace+"/"+s.Name)
		}
	}
	return strings.Join(u, ", "), strings.Join(g, ", "), strings.Join(a, ", ")
}
