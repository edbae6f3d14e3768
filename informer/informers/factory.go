package informers

import (
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/admissionregistration"
	"k8s.io/client-go/informers/apiserverinternal"
	"k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/autoscaling"
	"k8s.io/client-go/informers/batch"
	"k8s.io/client-go/informers/certificates"
	"k8s.io/client-go/informers/coordination"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/discovery"
	"k8s.io/client-go/informers/events"
	"k8s.io/client-go/informers/extensions"
	"k8s.io/client-go/informers/flowcontrol"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/lifecycle"
	"k8s.io/client-go/informers/networking"
	"k8s.io/client-go/informers/node"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/informers/rbac"
	"k8s.io/client-go/informers/resource"
	"k8s.io/client-go/informers/scheduling"
	"k8s.io/client-go/informers/storage"
	"k8s.io/client-go/informers/storagemigration"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/informer/internal/generic"
)

// Options apply to all informers of a factory.
type Options struct {
	// DefaultResync is the resync period of handlers without their own; 0 means no
	// resync.
	DefaultResync time.Duration
	// CustomResync has the resync periods of some types, by an object of the type.
	CustomResync map[metav1.Object]time.Duration
	// Namespace is the only namespace that is listed; "" means all. Cluster-scoped types
	// are listed whole.
	Namespace string
	// TweakListOptions changes the options of each list and watch, for example to set a
	// selector; nil changes nothing. It is called concurrently and must set the same
	// selectors each time, because the objects are stored under them.
	TweakListOptions func(*metav1.ListOptions)
	// Transform is set on all informers; nil changes nothing. See
	// informer.FactoryOptions.TransformVersion.
	Transform cache.TransformFunc
}

// NewFactory returns a factory without informers; its methods create them. NewFactory
// sends no request to the server. persistent and client must not be nil. The caller
// closes the backend of persistent after Shutdown.
func NewFactory(persistent *informer.Factory, client kubernetes.Interface, opts Options) informers.SharedInformerFactory {
	f := &factory{persistent: persistent}
	f.plain = func() informers.SharedInformerFactory {
		shared := []informers.SharedInformerOption{
			informers.WithTransform(opts.Transform),
			informers.WithNamespace(opts.Namespace), informers.WithTweakListOptions(opts.TweakListOptions),
		}
		if opts.CustomResync != nil {
			shared = append(shared, informers.WithCustomResyncConfig(opts.CustomResync))
		}
		return informers.NewSharedInformerFactoryWithOptions(client, opts.DefaultResync, shared...)
	}
	f.SharedInformerFactory, f.namespace, f.tweak = f.plain(), opts.Namespace, opts.TweakListOptions
	return f
}

// factory is client-go's factory, which knows, starts and stops the informers, with other
// constructors of them.
type factory struct {
	informers.SharedInformerFactory
	persistent *informer.Factory
	plain      func() informers.SharedInformerFactory // a new one of client-go's
	namespace  string
	tweak      internalinterfaces.TweakListOptionsFunc
}

// ForResource returns the informer of a resource, which Start starts.
func (f *factory) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	found, err := f.plain().ForResource(gvr)
	if err != nil {
		return nil, err
	}
	clientGos := found.Informer()
	c, ok := contentOf(clientGos)
	if !ok {
		return f.SharedInformerFactory.ForResource(gvr)
	}
	inf := (*made)(f).InformerFor(c.example, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return clientGos })
	return generic.NewInformer(inf, func() cache.GenericLister {
		return cache.NewGenericLister(inf.GetIndexer(), gvr.GroupResource())
	}), nil
}

// made is a factory for client-go's informers of types. They call InformerFor with
// constructors of client-go's informers.
type made factory

// InformerFor returns the informer of a type: a persistent one, which lists and watches
// as client-go's would that clientGos makes.
func (f *made) InformerFor(example runtime.Object, clientGos internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	return f.SharedInformerFactory.InformerFor(example, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		inf := clientGos(client, resync)
		c, ok := contentOf(inf)
		if !ok {
			klog.Background().Info("The informer is not persistent: this client-go hides how it lists", "type", reflect.TypeOf(example))
			return inf
		}
		return f.persistent.NewInformer(c.lw, example, resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	})
}

// group returns what client-go has for a group of types, with persistent informers.
func group[I any](f *factory, of func(internalinterfaces.SharedInformerFactory, string, internalinterfaces.TweakListOptionsFunc) I) I {
	return of((*made)(f), f.namespace, f.tweak)
}

func (f *factory) Admissionregistration() admissionregistration.Interface {
	return group(f, admissionregistration.New)
}

func (f *factory) Internal() apiserverinternal.Interface { return group(f, apiserverinternal.New) }
func (f *factory) Apps() apps.Interface                  { return group(f, apps.New) }
func (f *factory) Autoscaling() autoscaling.Interface    { return group(f, autoscaling.New) }
func (f *factory) Batch() batch.Interface                { return group(f, batch.New) }
func (f *factory) Certificates() certificates.Interface  { return group(f, certificates.New) }
func (f *factory) Coordination() coordination.Interface  { return group(f, coordination.New) }
func (f *factory) Core() core.Interface                  { return group(f, core.New) }
func (f *factory) Discovery() discovery.Interface        { return group(f, discovery.New) }
func (f *factory) Events() events.Interface              { return group(f, events.New) }
func (f *factory) Extensions() extensions.Interface      { return group(f, extensions.New) }
func (f *factory) Flowcontrol() flowcontrol.Interface    { return group(f, flowcontrol.New) }
func (f *factory) Lifecycle() lifecycle.Interface        { return group(f, lifecycle.New) }
func (f *factory) Networking() networking.Interface      { return group(f, networking.New) }
func (f *factory) Node() node.Interface                  { return group(f, node.New) }
func (f *factory) Policy() policy.Interface              { return group(f, policy.New) }
func (f *factory) Rbac() rbac.Interface                  { return group(f, rbac.New) }
func (f *factory) Resource() resource.Interface          { return group(f, resource.New) }
func (f *factory) Scheduling() scheduling.Interface      { return group(f, scheduling.New) }
func (f *factory) Storage() storage.Interface            { return group(f, storage.New) }

func (f *factory) Storagemigration() storagemigration.Interface {
	return group(f, storagemigration.New)
}
