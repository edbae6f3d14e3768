package run

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/postgres"
	"github.com/informctl/informctl/postgres/pgtest"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestWanted checks which scope of a resource is followed after its version has changed.
func TestWanted(t *testing.T) {
	widgets := func(version string, isHeld bool, marked int64) postgres.ScopeStatus {
		kind := schema.GroupVersionKind{Group: "example.com", Version: version, Kind: "Widget"}
		return postgres.ScopeStatus{Scope: store.Scope{Cluster: "c1", Resource: "widgets.example.com", Kind: kind}, IsHeld: isHeld, MarkTime: time.Unix(marked, 0)}
	}
	for name, test := range map[string]struct {
		all  []postgres.ScopeStatus
		want []string // versions
	}{
		"one":                          {[]postgres.ScopeStatus{widgets("v1", false, 1)}, []string{"v1"}},
		"the first was replaced":       {[]postgres.ScopeStatus{widgets("v1", false, 2), widgets("v2", true, 1)}, []string{"v2"}},
		"the second was replaced":      {[]postgres.ScopeStatus{widgets("v1", true, 1), widgets("v2", false, 2)}, []string{"v1"}},
		"nobody publishes":             {[]postgres.ScopeStatus{widgets("v1", false, 1), widgets("v2", false, 2)}, []string{"v2"}},
		"the new one is still to come": {[]postgres.ScopeStatus{widgets("v1", true, 1), widgets("v2", false, 0)}, []string{"v1"}},
	} {
		t.Run(name, func(t *testing.T) {
			byName, everything := &options{}, &options{}
			byName.Resources, everything.All = []string{"widgets"}, true
			for _, o := range []*options{byName, everything} {
				scopes, err := o.wanted(test.all)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, s := range scopes {
					got = append(got, s.Scope.Kind.Version)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("with --all %t (-want +got):\n%s", o.All, diff)
				}
			}
		})
	}
}

// TestWantedParts checks what is followed if a resource is also, or only, published in
// parts.
func TestWantedParts(t *testing.T) {
	pods := func(namespace, labels string) postgres.ScopeStatus {
		return postgres.ScopeStatus{Scope: store.Scope{Cluster: "c1", Resource: "pods", Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespace: namespace, LabelSelector: labels}}
	}
	for name, test := range map[string]struct{ all, want []postgres.ScopeStatus }{
		"the whole came later": {[]postgres.ScopeStatus{pods("", "app=x"), pods("", ""), pods("a", "")}, []postgres.ScopeStatus{pods("", "")}},
		"only parts":           {[]postgres.ScopeStatus{pods("", "app=x"), pods("a", ""), pods("b", "")}, []postgres.ScopeStatus{pods("", "app=x"), pods("a", ""), pods("b", "")}},
	} {
		t.Run(name, func(t *testing.T) {
			o := &options{}
			o.Resources = []string{"pods"}
			got, err := o.wanted(test.all)
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestWantedNames checks that resources are named as without a database, and each is
// followed once.
func TestWantedNames(t *testing.T) {
	var all []postgres.ScopeStatus
	for _, s := range []store.Scope{ // in the order of Scopes
		{Resource: "networkpolicies.crd.projectcalico.org", Kind: schema.GroupVersionKind{Group: "crd.projectcalico.org", Version: "v1", Kind: "NetworkPolicy"}},
		{Resource: "networkpolicies.networking.k8s.io", Kind: schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}},
		{Resource: "pods", Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}},
		{Resource: "widgets.example.com", Kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}},
	} {
		s.Cluster = "c1"
		all = append(all, postgres.ScopeStatus{Scope: s})
	}
	const builtIn, custom = "networkpolicies.networking.k8s.io", "networkpolicies.crd.projectcalico.org"
	for names, want := range map[string][]string{
		"networkpolicies":        {builtIn},
		"networkpolicy":          {builtIn},
		"netpol":                 {builtIn},
		custom:                   {custom},
		"netpol," + custom:       {builtIn, custom},
		"po":                     {"pods"},
		"Pods":                   {"pods"},
		"pods.v1":                {"pods"},
		"widget":                 {"widgets.example.com"},
		"widgets.v1.example.com": {"widgets.example.com"},
		"pods,pod,po,pods":       {"pods"},
	} {
		o := &options{}
		o.Resources = strings.Split(names, ",")
		scopes, err := o.wanted(all)
		var got []string
		for _, s := range scopes {
			got = append(got, s.Scope.Resource)
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", names, err, diff)
		}
	}
}

// TestPublishedSelector checks that a scope with a selector can be followed.
func TestPublishedSelector(t *testing.T) {
	db := openDatabase(t)
	defer func() { _ = db.Close() }()
	scope := store.Scope{Cluster: "c1", Resource: "configmaps", Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), LabelSelector: "app=x"}
	server := fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
	if _, err := server.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", Labels: map[string]string{"app": "x"}}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		err := db.Publish(ctx, []postgres.Collection{{Scope: scope, ListerWatcher: server, Example: &corev1.ConfigMap{}}}, postgres.PublishOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	defer done.Wait()
	defer cancel()
	p := &published{db: db}
	collection, err := p.collection(scope)
	if err != nil {
		t.Fatal(err)
	}
	lw := cache.ToListerWatcherWithContext(collection.ListerWatcher(func(string, error) {}))
	_, err = lw.ListWithContext(t.Context(), metav1.ListOptions{})
	for apierrors.IsServiceUnavailable(err) { // until it is published
		<-time.After(10 * time.Millisecond)
		_, err = lw.ListWithContext(t.Context(), metav1.ListOptions{})
	}
	if err != nil {
		t.Errorf("a list: %v", err)
	}
	w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("a watch: %v", err)
	}
	w.Stop()
}

// TestPublishedChanges checks that run --all follows what is published: a resource in
// another version replaces the first one when it is listed, what two answers in a row
// lack is no longer followed, and another cluster does not matter.
func TestPublishedChanges(t *testing.T) {
	db := openDatabase(t)
	defer func() { _ = db.Close() }()
	scope := func(cluster, resource, version string) store.Scope {
		kind := schema.GroupVersionKind{Group: "example.com", Version: version, Kind: "Widget"}
		return store.Scope{Cluster: cluster, Resource: resource + ".example.com", Kind: kind, Form: store.Unstructured}
	}
	// publish returns what ends the publication.
	publish := func(scopes ...store.Scope) (end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		var collections []postgres.Collection
		for _, s := range scopes {
			obj := &unstructured.Unstructured{}
			obj.SetGroupVersionKind(s.Kind)
			server := fakeapi.New(obj, &unstructured.UnstructuredList{}, fakeapi.Options{})
			widget := obj.DeepCopy()
			widget.SetName("a")
			if _, err := server.Create(widget); err != nil {
				t.Fatal(err)
			}
			collections = append(collections, postgres.Collection{Scope: s, ListerWatcher: server, Example: obj})
		}
		done.Go(func() {
			if err := db.Publish(ctx, collections, postgres.PublishOptions{TTL: time.Second}); err != nil {
				t.Error(err)
			}
		})
		return func() { cancel(); done.Wait() }
	}
	v1, v2, gone := scope("c1", "widgets", "v1"), scope("c1", "widgets", "v2"), scope("c1", "gadgets", "v1")
	end := publish(v1, gone)
	file, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	o := &options{}
	o.All = true
	restore := RediscoverEvery
	RediscoverEvery = 50 * time.Millisecond
	defer func() { RediscoverEvery = restore }()
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Background()))
	defer cancel()
	await := func(what string, holds func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !holds(); <-time.After(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("not in time: ", what)
			}
		}
	}
	var c *connection
	await("both are published", func() bool {
		c, err = connectPublished(ctx, o, &published{db: db})
		return err == nil && len(c.collections) == 2
	})
	fs, err := o.newFollowers(c, file, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fs.list() {
		fs.start(ctx, f)
	}
	fs.running.Go(func() { fs.followPublished(ctx) })
	holds := func(want ...store.Scope) func() bool {
		return func() bool {
			infos, err := fs.stored()
			n := 0
			for _, i := range infos {
				if slices.Contains(want, i.Scope) && i.Complete && i.Objects == 1 {
					n++
				}
			}
			return err == nil && n == len(want) && len(infos) == len(want)
		}
	}
	await("both are stored", holds(v1, gone))

	end()
	if err := db.Drop(ctx, numberOf(t, db, gone)); err != nil {
		t.Fatal(err)
	}
	end = publish(v2, scope("c2", "widgets", "v1"))
	defer func() { end() }()
	await("one is followed in another version, and one no longer", func() bool {
		all := fs.list()
		return len(all) == 1 && all[0].Scope == v2
	})
	await("the version before is dropped, and what is no longer published stays", holds(v2, gone))
	cancel()
	if err := fs.wait(); err != nil {
		t.Error(err)
	}
}

// TestPublishedLater checks that run follows the named resources that are published, is
// not ready without the others, and takes them up when they are published.
func TestPublishedLater(t *testing.T) {
	db := openDatabase(t)
	defer func() { _ = db.Close() }()
	var publishing sync.WaitGroup
	defer publishing.Wait()
	ctx, cancel := context.WithTimeout(klog.NewContext(t.Context(), klog.Background()), 5*time.Minute)
	defer cancel()
	// publish publishes a resource of a cluster of one object.
	publish := func(cluster, resource string) store.Scope {
		kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: resource}
		scope := store.Scope{Cluster: cluster, Resource: resource + ".example.com", Kind: kind, Form: store.Unstructured}
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(kind)
		server := fakeapi.New(obj, &unstructured.UnstructuredList{}, fakeapi.Options{})
		one := obj.DeepCopy()
		one.SetName("a")
		if _, err := server.Create(one); err != nil {
			t.Fatal(err)
		}
		list := []postgres.Collection{{Scope: scope, ListerWatcher: server, Example: obj}}
		publishing.Go(func() {
			if err := db.Publish(ctx, list, postgres.PublishOptions{Group: cluster + resource}); err != nil {
				t.Error(err)
			}
		})
		return scope
	}
	widgets := publish("c1", "widgets")
	file, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	o := &options{env: cmdutil.Env{Streams: genericiooptions.NewTestIOStreamsDiscard()}}
	o.Resources = []string{"widgets", "gadgets", "wheels"}
	if o.history, err = parseHistory("gadgets=2h"); err != nil {
		t.Fatal(err)
	}
	restore := RediscoverEvery
	RediscoverEvery = 50 * time.Millisecond
	defer func() { RediscoverEvery = restore }()
	first, stop := context.WithTimeout(ctx, 2*time.Minute)
	defer stop()
	c, err := connectPublished(first, o, &published{db: db})
	if err != nil {
		t.Fatal(err)
	}
	fs, err := o.newFollowers(c, file, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fs.list() {
		fs.start(ctx, f)
	}
	fs.running.Go(func() { fs.followMissing(ctx) })
	await := func(want []string, scopes ...store.Scope) {
		t.Helper()
		for {
			infos, err := fs.stored()
			n := 0
			for _, i := range infos {
				if slices.Contains(scopes, i.Scope) && i.Complete && i.Objects == 1 {
					n++
				}
			}
			lacks := fs.notPublished()
			if err == nil && n == len(scopes) && len(infos) == n && slices.Equal(lacks, want) {
				return
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				t.Fatalf("not in time: %d scopes of %d, not published: %s, want %s", n, len(scopes), lacks, want)
			}
		}
	}
	await([]string{"gadgets: not published yet", "wheels: not published yet"}, widgets)
	publish("c2", "wheels")
	gadgets := publish("c1", "gadgets")
	await([]string{"wheels: not published yet"}, widgets, gadgets)
	await(nil, widgets, gadgets, publish("c1", "wheels"))
	cancel()
	if err := fs.wait(); err != nil {
		t.Error(err)
	}
}

// openDatabase returns a database with a schema of its own. The caller closes it.
func openDatabase(t *testing.T) *postgres.DB {
	t.Helper()
	dsn, opts := pgtest.DSN(t), postgres.Options{Schema: pgtest.Schema()}
	if err := postgres.Migrate(t.Context(), dsn, opts); err != nil {
		t.Fatal(err)
	}
	db, err := postgres.Open(t.Context(), dsn, opts)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// numberOf returns the number of a published scope.
func numberOf(t *testing.T, db *postgres.DB, s store.Scope) int64 {
	t.Helper()
	all, err := db.Scopes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range all {
		if status.Scope.Resource == s.Resource {
			return status.ID
		}
	}
	t.Fatalf("%s is not published", s)
	return 0
}
