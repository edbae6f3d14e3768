package informer

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// compatReflector returns the argument for client-go's watch error handlers: a
// cache.Reflector with the informer's name, type and LastSyncResourceVersion. Only a list
// can set the latter, so the reflector runs an empty list into a store that holds
// nothing.
func compatReflector(inf *Informer) *cache.Reflector {
	version := onlyVersion(inf.LastSyncResourceVersion())
	r := cache.NewReflectorWithOptions(version, inf.example, nowhere{}, cache.ReflectorOptions{
		Name: "informer for " + inf.Scope().String(), TypeDescription: inf.Scope().Kind.String(),
	})
	ctx := klog.NewContext(context.Background(), klog.Logger{})
	_ = r.ListAndWatchWithContext(ctx) // ends with errOnlyVersion
	return r
}

// errOnlyVersion ends a compatReflector's only list before its watch.
var errOnlyVersion = errors.New("informer: not a watch")

// onlyVersion is a ListerWatcher of nothing at a resource version.
type onlyVersion string

// List implements cache.Lister.
func (v onlyVersion) List(metav1.ListOptions) (runtime.Object, error) {
	return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: string(v)}}, nil
}

// Watch implements cache.Watcher.
func (onlyVersion) Watch(metav1.ListOptions) (watch.Interface, error) { return nil, errOnlyVersion }

// IsWatchListSemanticsUnSupported makes the reflector list.
func (onlyVersion) IsWatchListSemanticsUnSupported() bool { return true }

// nowhere is a cache.ReflectorStore that holds nothing.
type nowhere struct{}

// Add implements cache.ReflectorStore.
func (nowhere) Add(interface{}) error { return nil }

// Update implements cache.ReflectorStore.
func (nowhere) Update(interface{}) error { return nil }

// Delete implements cache.ReflectorStore.
func (nowhere) Delete(interface{}) error { return nil }

// Replace implements cache.ReflectorStore.
func (nowhere) Replace([]interface{}, string) error { return nil }

// Resync implements cache.ReflectorStore.
func (nowhere) Resync() error { return nil }
