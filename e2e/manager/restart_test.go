package manager_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
)

// TestRestartedWithOtherOptions opens one file with caches that select different parts of
// one kind in turn, while objects are created and deleted. Each part must be listed only
// once, and no part may be used in place of another.
func TestRestartedWithOtherOptions(t *testing.T) {
	w := theWorld(t)
	t.Parallel()
	all := []string{"r-one", "r-two", "r-three"}
	for _, namespace := range all {
		w.create(t, configMap(namespace, "a", "a"))
		w.create(t, configMap(namespace, "b", "b"))
	}
	byLabel := map[client.Object]crcache.ByObject{&corev1.ConfigMap{}: {Label: label("value", "a")}}
	path := filepath.Join(t.TempDir(), "informers.db")
	var held []string
	for _, run := range []struct {
		name    string
		options crcache.Options
		want    func() []string
		scopes  []string // scopes that the file did not have
	}{
		{"everything", crcache.Options{}, func() []string { return w.keys(t, "", all...) }, []string{"configmaps"}},
		{
			"two namespaces",
			crcache.Options{DefaultNamespaces: map[string]crcache.Config{"r-one": {}, "r-two": {}}},
			func() []string { return w.keys(t, "", "r-one", "r-two") },
			[]string{"configmaps in r-one", "configmaps in r-two"},
		},
		{
			"by label",
			crcache.Options{ByObject: byLabel},
			func() []string { return w.keys(t, "a", all...) },
			[]string{"configmaps with labels value=a"},
		},
		{"everything again", crcache.Options{}, func() []string { return w.keys(t, "", all...) }, nil},
		{
			"by label in one of two namespaces",
			crcache.Options{DefaultNamespaces: map[string]crcache.Config{"r-one": {LabelSelector: label("value", "b")}, "r-two": {}}},
			func() []string { return append(w.keys(t, "b", "r-one"), w.keys(t, "", "r-two")...) },
			[]string{"configmaps in r-one with labels value=b"},
		},
		{"by label again", crcache.Options{ByObject: byLabel}, func() []string { return w.keys(t, "a", all...) }, nil},
	} {
		t.Run(run.name, func(t *testing.T) {
			w.create(t, configMap("r-two", "more", "a")) // deleted before the next run
			c := w.open(t, path, setup{options: run.options})
			for _, form := range forms {
				got := slices.DeleteFunc(reader{c, shape{}, form}.keys(t, configMaps), func(key string) bool { return !strings.HasPrefix(key, "r-") })
				if diff := cmp.Diff(run.want(), got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", form, diff)
				}
			}
			c.stop()
			if got := w.lists(t, t.Name()); len(got) != len(forms)*len(run.scopes) {
				t.Errorf("lists: %q, want one of each of %q", got, run.scopes)
			}
			held = append(held, inForms(run.scopes)...)
			slices.Sort(held)
			if diff := cmp.Diff(held, scopes(t, path)); diff != "" {
				t.Errorf("scopes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestChangesBetween checks the notifications about changes between two runs, for a
// handler that exists when the informer catches up and for one that is added later.
func TestChangesBetween(t *testing.T) {
	w := theWorld(t)
	t.Parallel()
	for _, late := range []bool{false, true} {
		for _, form := range forms {
			name := form.String()
			if late {
				name += ", a late handler"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				namespace := "b-" + form.String()
				if late {
					namespace += "-late"
				}
				checkChangesBetween(t, w, form, namespace, late)
			})
		}
	}
}

func checkChangesBetween(t *testing.T, w *world, form store.Form, namespace string, late bool) {
	t.Helper()
	for _, name := range []string{"deleted", "changed", "kept"} {
		w.create(t, configMap(namespace, name, "old"))
	}
	s := setup{options: crcache.Options{DefaultNamespaces: in(namespace, crcache.Config{})}}
	path := filepath.Join(t.TempDir(), "informers.db")
	if !t.Run("cold", func(t *testing.T) {
		c := w.open(t, path, s)
		reader{c, shape{}, form}.wantKeys(t, configMaps, w.keys(t, "", namespace))
		c.stop()
	}) {
		return
	}
	w.remove(t, configMap(namespace, "deleted", ""))
	if err := w.direct.Patch(t.Context(), configMap(namespace, "changed", ""), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"value":"new"}}}`))); err != nil {
		t.Fatal(err)
	}
	w.create(t, configMap(namespace, "created", "new"))
	t.Run("warm", func(t *testing.T) {
		c := w.open(t, path, s)
		r := reader{c, shape{}, form}
		inf, err := c.GetInformer(t.Context(), r.object(t, configMaps), crcache.BlockUntilSynced(late))
		if err != nil {
			t.Fatal(err)
		}
		calls := handle(t, inf, "")
		held := map[string]string{} // the sum of the calls
		var gone []string
		for len(calls) > 0 {
			switch call := <-calls; call.what {
			case "add":
				obj := call.obj.(client.Object)
				if _, twice := held[obj.GetName()]; twice || !call.initial {
					t.Errorf("%s was added, before: %t, initial: %t", obj.GetName(), twice, call.initial)
				}
				held[obj.GetName()] = obj.GetLabels()["value"]
			case "update":
				old, obj := call.old.(client.Object), call.obj.(client.Object)
				if was, ok := held[obj.GetName()]; !ok || was != old.GetLabels()["value"] {
					t.Errorf("%s was updated from %q, and was %q, %t", obj.GetName(), old.GetLabels()["value"], was, ok)
				}
				held[obj.GetName()] = obj.GetLabels()["value"]
			case "delete":
				last, ok := call.obj.(client.Object)
				if tombstone, is := call.obj.(cache.DeletedFinalStateUnknown); is {
					last, ok = tombstone.Obj.(client.Object)
				}
				if !ok || last.GetLabels()["value"] != "old" || held[last.GetName()] != "old" {
					t.Fatalf("deleted: %+v", call.obj)
				}
				delete(held, last.GetName())
				gone = append(gone, last.GetName())
			}
		}
		wantSame(t, "deleted", []string{"deleted"}, gone)
		wantSame(t, "held", map[string]string{"changed": "new", "kept": "old", "created": "new"}, held)
		r.wantKeys(t, configMaps, w.keys(t, "", namespace))
		c.stop()
		if got := w.lists(t, t.Name()); len(got) > 0 {
			t.Errorf("lists: %q", got)
		}
	})
}

// TestRemovedAndRestarted checks that the data of a removed informer is used again by the
// next informer of its kind, in the same process and after a restart, while the informers
// of the other forms continue to run.
func TestRemovedAndRestarted(t *testing.T) {
	w := theWorld(t)
	t.Parallel()
	w.create(t, configMap("x-one", "a", "a"))
	s := setup{options: crcache.Options{DefaultNamespaces: in("x-one", crcache.Config{})}}
	w.coldAndWarm(t, s, func(t *testing.T, c *session) {
		for _, removed := range forms {
			for _, form := range forms {
				reader{c, shape{}, form}.wantKeys(t, configMaps, w.keys(t, "", "x-one"))
			}
			r := reader{c, shape{}, removed}
			inf := r.informerOf(t, configMaps)
			if err := c.RemoveInformer(t.Context(), r.object(t, configMaps)); err != nil {
				t.Fatal(err)
			}
			if err := c.IndexField(t.Context(), r.object(t, configMaps), "value", valueOf); err != nil {
				t.Fatal(err)
			}
			w.create(t, configMap("x-one", "removed-"+removed.String(), "b"))
			r.wantKeys(t, configMaps, w.keys(t, "b", "x-one"), client.MatchingFields{"value": "b"})
			if !inf.IsStopped() {
				t.Errorf("%s: the removed informer goes on", removed)
			}
		}
	})
}

// TestSecretsAreNotWritten checks that Secrets are held in memory without a key, and are
// listed again after a restart.
func TestSecretsAreNotWritten(t *testing.T) {
	w := theWorld(t)
	t.Parallel()
	secrets := corev1.SchemeGroupVersion.WithKind("Secret")
	secret := configMap("s-one", "secret", "a")
	w.create(t, &corev1.Secret{ObjectMeta: secret.ObjectMeta, StringData: secret.Data})
	w.create(t, secret)
	path := filepath.Join(t.TempDir(), "informers.db")
	for _, start := range []string{"cold", "warm"} {
		t.Run(start, func(t *testing.T) {
			c := w.open(t, path, setup{options: crcache.Options{DefaultNamespaces: in("s-one", crcache.Config{})}})
			for _, form := range forms {
				r := reader{c, shape{}, form}
				r.wantKeys(t, configMaps, []string{"s-one/secret"})
				r.wantKeys(t, secrets, []string{"s-one/secret"})
			}
			c.stop()
			want := len(forms)
			if start == "cold" {
				want *= 2
			}
			if got := w.lists(t, t.Name()); len(got) != want {
				t.Errorf("lists: %q, want %d", got, want)
			}
			if diff := cmp.Diff(inForms([]string{"configmaps in s-one"}), scopes(t, path)); diff != "" {
				t.Errorf("scopes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSecretsAreEncrypted checks that with a key Secrets are stored in every form and
// resumed, and that the file does not contain their content.
func TestSecretsAreEncrypted(t *testing.T) {
	w := theWorld(t)
	t.Parallel()
	secrets := corev1.SchemeGroupVersion.WithKind("Secret")
	dir := t.TempDir()
	path, keys := filepath.Join(dir, "informers.db"), filepath.Join(dir, "keys")
	if err := os.WriteFile(keys, []byte(strings.Repeat("5e", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, start := range []string{"cold", "warm"} {
		secret := configMap("s-two", start, "hushLabel")
		w.create(t, &corev1.Secret{ObjectMeta: secret.ObjectMeta, StringData: map[string]string{"password": "hushContent"}})
		want = append(want, "s-two/"+start)
		t.Run(start, func(t *testing.T) {
			c := w.open(t, path, setup{
				options: crcache.Options{DefaultNamespaces: in("s-two", crcache.Config{})}, keys: codec.KeyFile(keys),
			})
			for _, form := range forms {
				reader{c, shape{}, form}.wantKeys(t, secrets, want)
			}
			c.stop()
			lists := 0
			if start == "cold" {
				lists = len(forms)
			}
			if got := w.lists(t, t.Name()); len(got) != lists {
				t.Errorf("lists: %q, want %d", got, lists)
			}
			if diff := cmp.Diff(inForms([]string{"secrets in s-two"}), scopes(t, path)); diff != "" {
				t.Errorf("scopes (-want +got):\n%s", diff)
			}
			if b, err := os.ReadFile(path); err != nil || bytes.Contains(b, []byte("hush")) {
				t.Errorf("the file has some of a Secret (%v)", err)
			}
		})
	}
}

// TestStartedWithAnEndedContext checks that a cache whose context has ended before its
// start returns no error, and that the next cache finds the file unchanged.
func TestStartedWithAnEndedContext(t *testing.T) {
	w := theWorld(t)
	t.Parallel()
	w.create(t, configMap("e-one", "a", "a"))
	path := filepath.Join(t.TempDir(), "informers.db")
	for _, start := range []string{"cold", "ended", "warm"} {
		t.Run(start, func(t *testing.T) {
			s := setup{options: crcache.Options{DefaultNamespaces: in("e-one", crcache.Config{})}, ended: start == "ended"}
			s.before = func(t *testing.T, c crcache.Cache) {
				for _, form := range forms {
					if err := c.IndexField(t.Context(), newObject(t, form, configMaps), "value", valueOf); err != nil {
						t.Fatal(err)
					}
				}
			}
			c := w.open(t, path, s)
			if start != "ended" {
				for _, form := range forms {
					reader{c, shape{}, form}.wantKeys(t, configMaps, []string{"e-one/a"}, client.MatchingFields{"value": "a"})
				}
			}
			c.stop()
			if got := w.lists(t, t.Name()); (len(got) > 0) != (start == "cold") {
				t.Errorf("lists: %q", got)
			}
			if diff := cmp.Diff(inForms([]string{"configmaps in e-one"}), scopes(t, path)); diff != "" {
				t.Errorf("scopes (-want +got):\n%s", diff)
			}
		})
	}
}
