package cli_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// twoScopes writes a file in which all pods and the pods with the label app=web of one
// namespace are scopes, whose logs cover each other's changes.
//
//	all pods: list@10                        web@14, db deleted@15, ran@16
//	app=web:  list@10 web@12 (then) web@13   web no longer matches@14
func twoScopes(t *testing.T) (path string, then time.Time) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	at := func(name, rv, app string) *corev1.Pod {
		p := pod("a", name, app)
		p.ResourceVersion = rv
		return p
	}
	change := func(rv string, obj runtime.Object) store.Batch {
		return store.Batch{RV: rv, Changes: []store.Change{{Object: obj}}}
	}
	all := openScope(t, db, store.Scope{Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")})
	load(t, all, "10", at("web", "9", "web"), at("db", "8", "db"), at("same", "7", "web"))
	web := openScope(t, db, store.Scope{
		Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod"), Namespace: "a", LabelSelector: "app=web",
	})
	load(t, web, "10", at("web", "9", "web"), at("same", "7", "web"))
	apply(t, web, change("12", at("web", "12", "web")))
	then = time.Now()
	apply(t, web, change("13", at("web", "13", "web")))
	apply(t, all, change("13", at("web", "13", "web")))
	apply(t, all, change("14", at("web", "14", "db")))
	apply(t, web, store.Batch{RV: "14", Changes: []store.Change{{Key: "a/web", RV: "14"}}})
	apply(t, all, store.Batch{RV: "15", Changes: []store.Change{{Key: "a/db", RV: "15"}, {Key: "a/same", RV: "15"}}})
	apply(t, web, store.Batch{RV: "15", Changes: []store.Change{{Key: "a/same", RV: "15"}}})
	apply(t, all, change("16", at("new", "16", "web")))
	apply(t, web, change("16", at("new", "16", "web")))
	for _, closes := range []func() error{all.Close, web.Close, db.Close} {
		if err := closes(); err != nil {
			t.Fatal(err)
		}
	}
	return path, then
}

// TestPastOfSeveralScopes checks that the state of a moment is that of the scope that was
// the latest then.
func TestPastOfSeveralScopes(t *testing.T) {
	path, then := twoScopes(t)
	const columns = "custom-columns=N:.metadata.name,RV:.metadata.resourceVersion"
	for at, want := range map[string]string{
		then.Format(time.RFC3339Nano): "db 8 same 7 web 12",
		"10":                          "db 8 same 7 web 9",
		"14":                          "db 8 same 7 web 14",
		"16":                          "new 16 web 14",
	} {
		got := sayAt(t.Context(), time.Now(), "query", "pods", "-o", columns, "--no-headers", "--at", at, "--db", path)
		if fields := strings.Join(strings.Fields(got.Out), " "); fields != want {
			t.Errorf("at %s: %q, want %q\n%s", at, fields, want, got.Err)
		}
	}
}

// TestHistoryOfSeveralScopes checks that a change that several scopes have in their logs
// is printed once, and that an object that leaves a selector is not deleted.
func TestHistoryOfSeveralScopes(t *testing.T) {
	path, _ := twoScopes(t)
	for _, resources := range []string{"pods", "po,pods"} {
		got := say(t.Context(), "history", resources, "-o", "json", "--db", path)
		var told []string
		for line := range strings.Lines(got.Out) {
			var c struct{ Change, Name, ResourceVersion string }
			if err := json.Unmarshal([]byte(line), &c); err != nil {
				t.Fatal(err)
			}
			told = append(told, c.Change+" "+c.Name+" "+c.ResourceVersion)
		}
		want := []string{"updated web 12", "updated web 13", "updated web 14", "deleted db 15", "deleted same 15", "created new 16"}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("%s (-want +got):\n%s%s", resources, diff, got.Err)
		}
	}
}
