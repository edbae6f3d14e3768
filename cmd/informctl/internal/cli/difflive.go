package cli

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"github.com/informctl/informctl/cmd/informctl/internal/cluster"
	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/internal/secret"
	"github.com/informctl/informctl/store"
)

// serverPage is the number of objects per page that is requested from a server.
const serverPage = 500

// withServer compares a file with the server of its cluster. It holds one or two pages of
// the server's objects and only the keys of the file's objects.
func (d *differ) withServer(ctx context.Context, path string, views []*view, items []item) error {
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
	for _, v := range views {
		if of := v.info.Scope.Cluster; of != "" && of != identity {
			return fmt.Errorf("%s is of another cluster than %s: its %s are of %s, not of %s",
				path, config.Host, v.info.Scope.Resource, of, identity)
		}
	}
	srv, err := cluster.NewServer(config)
	if err != nil {
		return err
	}
	d.o.env.NoteNewer(srv.Version(), typed(items))
	known := map[string]item{}
	for _, i := range items {
		known[i.view.info.Scope.Resource+" "+i.key()] = i
	}
	m := d.o.env.NewMeter("comparing", "objects", len(items))
	defer m.Stop()
	seen := make(map[string]bool, len(items))
	for _, v := range views {
		part := make([]listed, 0, chunk)
		err := d.list(ctx, srv, v, func(obj runtime.Object) error {
			key, err := cache.MetaNamespaceKeyFunc(obj)
			if err != nil {
				return err
			}
			id := v.info.Scope.Resource + " " + key
			if seen[id] {
				return nil // seen in another scope, or before the list was restarted
			}
			seen[id] = true
			m.Set(len(seen))
			of, ok := known[id]
			if !ok {
				of = newItem(v, key)
			}
			if part = append(part, listed{of, ok, obj}); len(part) < chunk {
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
	for _, i := range items {
		if seen[i.view.info.Scope.Resource+" "+i.key()] {
			continue
		}
		if err := d.print(i.view.info.Scope.Resource, i.key(), &unstructured.Unstructured{}, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// listed is an object of the server and the item of the file if it exists there.
type listed struct {
	item
	stored bool
	object runtime.Object
}

func (d *differ) compareListed(part []listed) error {
	var items []item
	for _, l := range part {
		if l.stored {
			items = append(items, l.item)
		}
	}
	found, err := fetch(items, record)
	if err != nil {
		return err
	}
	stored := make([]encoded, len(part))
	for i, l := range part {
		if l.stored {
			stored[i], found = found[0], found[1:]
		}
	}
	before := make([]runtime.Object, len(part))
	fields := make([][]fieldDiff, len(part))
	err = parallel.Do(len(part), func(i int) error {
		l := part[i]
		obj, err := l.load(stored[i])
		if err != nil || obj == nil {
			return err
		}
		before[i] = obj
		a, b := obj, l.object
		if l.view.info.Scope.Form == store.Metadata {
			if a, err = metadataOf(a); err == nil {
				b, err = metadataOf(b)
			}
		}
		if err == nil {
			fields[i], err = d.comparison().fields(secret.Is(l.view.info.Scope, obj), a, b)
		}
		if err != nil {
			return l.wrap(err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, l := range part {
		if err := d.print(l.view.info.Scope.Resource, l.key(), before[i], l.object, fields[i]); err != nil {
			return err
		}
	}
	return nil
}

// metadataOf returns only the metadata of an object.
func metadataOf(obj runtime.Object) (runtime.Object, error) {
	content, err := contentOf(obj)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: map[string]any{"metadata": content["metadata"]}}, nil
}

// list calls fn for every object of the server that belongs to the scope and that the
// options select. If the server no longer continues the list at a page, list may start
// again.
func (d *differ) list(ctx context.Context, srv *cluster.Server, v *view, fn func(runtime.Object) error) error {
	scope := v.info.Scope
	if !scheme.Scheme.Recognizes(scope.Kind) {
		scope.Form = store.Unstructured // the form in which the file is read
	}
	src, err := srv.Collection(scope)
	if err != nil {
		return err
	}
	p := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return src.List(ctx, src.Selected(options))
	})
	p.PageSize, p.PageBufferSize = serverPage, 1
	err = p.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		m, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		if !d.o.selection.filter.isWithin(m.GetNamespace()) || !d.o.selection.filter.labels.Matches(labels.Set(m.GetLabels())) {
			return nil
		}
		return fn(v.withKinds(obj))
	})
	if err != nil {
		return fmt.Errorf("%s of server %s: %w", scope.Resource, srv.Config.Host, err)
	}
	return nil
}
