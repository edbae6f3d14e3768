package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestWithoutHistory checks what the commands say of leases, of which run keeps no
// history unless it is told to: how many changes are left out, and what would keep them.
func TestWithoutHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	leases := store.Scope{Resource: "leases.coordination.k8s.io", Kind: coordinationv1.SchemeGroupVersion.WithKind("Lease")}
	for _, rv := range []string{"10", "11", "12"} {
		renewed(t, path, leases, store.History{Bytes: -1}, rv)
	}
	const none = "no history is kept of it; informctl run --history leases.coordination.k8s.io=24h keeps one\n"
	for args, want := range map[string]said{
		"history leases":                  {"", "informctl: leases.coordination.k8s.io: " + none, 0},
		"query leases one --at 11":        {"", "informctl: leases.coordination.k8s.io: " + none, 1},
		"restore leases one -n a --at 11": {"", "informctl: leases.coordination.k8s.io: " + none, 1},
		"query leases -o name":            {"lease.coordination.k8s.io/one\n", "", 0},
		"info":                            {"complete", "informctl: changes that are not in the history: 2 of leases.coordination.k8s.io\n", 0},
		"info -o json":                    {`"unlogged": 2`, "", 0},
	} {
		got := say(t.Context(), append(strings.Fields(args), "--db", path)...)
		if got.Code != want.Code || !strings.Contains(got.Out, want.Out) || !strings.Contains(got.Err, want.Err) {
			t.Errorf("%s: exit code %d\n%s%swant %+v", args, got.Code, got.Out, got.Err, want)
		}
	}
}

// TestHistoryTurnedOff checks that history says of the last change that it does not know
// to what, when later changes are left out.
func TestHistoryTurnedOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	leases := store.Scope{Resource: "leases.coordination.k8s.io", Kind: coordinationv1.SchemeGroupVersion.WithKind("Lease")}
	for _, rv := range []string{"10", "11"} {
		renewed(t, path, leases, store.History{}, rv)
	}
	renewed(t, path, leases, store.History{Bytes: -1}, "12")
	got := say(t.Context(), "history", "leases", "--db", path)
	if got.Code != 0 || !strings.Contains(got.Out, "not known any more") {
		t.Errorf("exit code %d\n%s%s", got.Code, got.Out, got.Err)
	}
}

// renewed makes a file with a lease, or changes the lease.
func renewed(t *testing.T, path string, leases store.Scope, history store.History, rv string) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{History: history})
	if err != nil {
		t.Fatal(err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "one", UID: "1", ResourceVersion: rv}}
	lease.Spec.HolderIdentity = ptr.To("holder-" + rv)
	fillScopeAt(t, db, nil, leases, rv, lease)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
