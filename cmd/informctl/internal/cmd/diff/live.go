package diff

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"github.com/informctl/informctl/cmd/informctl/internal/cluster"
	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/objectdiff"
	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/cmd/informctl/internal/selection"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/secret"
	"github.com/informctl/informctl/store"
)

// serverPage is the number of objects per page that is requested from a server.
const serverPage = 500

// withServer compares a file with the server of its cluster. It holds one or two pages of
// the server's objects and only the keys of the file's objects.
func (d *differ) withServer(ctx context.Context, path string, chosen selection.Chosen) error {
	if err := source.RefuseServed(d.o.kube, path, "would be compared with itself"); err != nil {
		return err
	}
	config, err := cluster.Config(d.o.kube)
	if err != nil {
		return err
	}
	identity, err := informer.ClusterIdentity(ctx, config)
	if ctx.Err() != nil {
		return cmdutil.ErrInterrupted
	}
	if err != nil && cluster.Unreachable(err) {
		return fmt.Errorf("server %s cannot be reached: %w", config.Host, err)
	}
	if err != nil {
		return fmt.Errorf("server %s: %w", config.Host, err)
	}
	views := source.OfServer(d.o.env, config.Host, identity, chosen.Views, func(v *source.View) store.Info { return v.Info })
	items := slices.DeleteFunc(slices.Clone(chosen.Items), func(i source.Item) bool { return !slices.Contains(views, i.View) })
	d.left = slices.DeleteFunc(d.left, func(info store.Info) bool {
		return info.Scope.Cluster != "" && info.Scope.Cluster != identity
	})
	for _, v := range views {
		if of := v.Info.Scope.Cluster; of != "" && of != identity {
			return fmt.Errorf("%s is of another cluster than %s: its %s are of %s, not of %s",
				path, config.Host, v.Info.Scope.Resource, of, identity)
		}
	}
	// What the server has of an object is what the first scope asks for.
	slices.SortStableFunc(views, func(a, b *source.View) int {
		switch {
		case a.IsWhole() == b.IsWhole():
			return 0
		case a.IsWhole():
			return -1
		}
		return 1
	})
	srv, err := cluster.NewServer(config)
	if err != nil {
		return err
	}
	d.o.env.NoteNewer(srv.Version(ctx), source.CountTyped(items))
	known := map[string]source.Item{}
	for _, i := range items {
		known[i.View.Info.Scope.Resource+" "+i.Key()] = i
	}
	m := d.o.env.NewMeter("comparing", "objects", len(items))
	defer m.Stop()
	seen := make(map[string]bool, len(items))
	for _, v := range views {
		part := make([]listed, 0, source.ChunkSize)
		err := d.list(ctx, srv, v, func(obj runtime.Object) error {
			key, err := cache.MetaNamespaceKeyFunc(obj)
			if err != nil {
				return err
			}
			id := v.Info.Scope.Resource + " " + key
			if seen[id] {
				return nil // seen in another scope, or before the list was restarted
			}
			seen[id] = true
			m.Set(len(seen))
			of, ok := known[id]
			if !ok {
				of = source.NewItem(v, key)
			}
			if part = append(part, listed{of, ok, obj}); len(part) < source.ChunkSize {
				return nil
			}
			err = d.compareListed(part)
			part = part[:0]
			return err
		})
		if ctx.Err() != nil {
			return cmdutil.ErrInterrupted
		}
		if err == nil {
			err = d.compareListed(part)
		}
		if err != nil {
			return err
		}
	}
	if len(chosen.Missing) > 0 && !d.served {
		return d.o.selection.NotFound(chosen.Missing[0], path+" and "+config.Host)
	}
	for _, i := range items {
		if seen[i.View.Info.Scope.Resource+" "+i.Key()] {
			continue
		}
		if err := d.print(i.View.Info.Scope.Resource, i.Key(), &unstructured.Unstructured{}, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// listed is an object of the server and the item of the file if it exists there.
type listed struct {
	source.Item
	stored bool
	object runtime.Object
}

func (d *differ) compareListed(part []listed) error {
	pairs, of, after := make([]pair, len(part)), make([]source.Item, len(part)), make([]runtime.Object, len(part))
	for i, l := range part {
		of[i], after[i] = l.Item, l.object
		if l.stored {
			pairs[i][0] = l.Item
		}
	}
	before, err := objectsOf(pairs, 0)
	if err != nil {
		return err
	}
	return d.compare(of, before, after, func(i int) (changed []objectdiff.Field, err error) {
		scope, a, b := of[i].View.Info.Scope, before[i], after[i]
		if scope.Form == store.Metadata {
			if a, err = metadataOf(a); err == nil {
				b, err = metadataOf(b)
			}
		}
		if err == nil {
			changed, err = d.comparison().Fields(secret.Is(scope, before[i]), a, b)
		}
		return changed, err
	})
}

// metadataOf returns only the metadata of an object.
func metadataOf(obj runtime.Object) (runtime.Object, error) {
	content, err := printer.Content(obj)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: map[string]any{"metadata": content["metadata"]}}, nil
}

// list calls fn for every object of the server that belongs to the scope and that the
// options select. If the server no longer continues the list at a page, list may start
// again.
func (d *differ) list(ctx context.Context, srv *cluster.Server, v *source.View, fn func(runtime.Object) error) error {
	scope := v.Info.Scope
	if !scheme.Scheme.Recognizes(scope.Kind) {
		scope.Form = store.Unstructured // the form in which the file is read
	}
	within := d.o.selection.Filter.Namespace
	if !d.o.selection.Filter.IsWithin(scope.Namespace) {
		return nil
	}
	if within != "" && scope.Namespace == "" {
		narrow := scope
		narrow.Namespace = within
		// A kind without namespaces is not found in one, and is listed whole.
		if err := d.listScope(ctx, srv, v, narrow, fn); !apierrors.IsNotFound(err) {
			return err
		}
	}
	return d.listScope(ctx, srv, v, scope, fn)
}

func (d *differ) listScope(ctx context.Context, srv *cluster.Server, v *source.View, scope store.Scope, fn func(runtime.Object) error) error {
	// The command line has one RESOURCE/NAME, or no name.
	names := d.o.selection.Wanted[0].Names
	if len(names) == 1 {
		one := fields.OneTermEqualSelector(metav1.ObjectNameField, names[0]).String()
		scope.FieldSelector = strings.Trim(scope.FieldSelector+","+one, ",")
	}
	collection, err := srv.Collection(scope)
	if err != nil {
		return err
	}
	p := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return collection.List(ctx, collection.Selected(options))
	})
	p.PageSize, p.PageBufferSize = serverPage, 1
	err = p.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		m, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		if !d.o.selection.Filter.IsWithin(m.GetNamespace()) || len(names) > 0 && !slices.Contains(names, m.GetName()) {
			return nil
		}
		d.served = true
		if !d.o.selection.Filter.Labels.Matches(labels.Set(m.GetLabels())) {
			return nil
		}
		return fn(v.WithKinds(obj))
	})
	if err != nil {
		return fmt.Errorf("%s of server %s: %w", scope.Resource, srv.Config.Host, err)
	}
	return nil
}
