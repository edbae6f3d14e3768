// Package dynamicinformer provides client-go's dynamicinformer with a persistent store:
// informers of unstructured objects, by resource, that start with the objects that the
// last process has stored and resume their watch.
//
// # Usage
//
// NewFactory replaces client-go's NewFilteredDynamicSharedInformerFactory, and Factory
// replaces its DynamicSharedInformerFactory; everything else stays:
//
//	persistent, err := informer.NewFactory(db, cfg, informer.FactoryOptions{})
//	client, err := dynamic.NewForConfig(cfg)
//	factory := dynamicinformer.NewFactory(persistent, client, dynamicinformer.Options{})
//
// The client must be created after informer.NewFactory and from the same configuration.
// The informers of any other client are not persisted; this is logged.
//
// # Concurrency
//
// A Factory is safe for concurrent use. Each started informer has its own goroutines
// until its context ends; Shutdown waits for them.
//
// # Compatibility
//
// For the behaviour of handlers and listers, see package informer. A resource is stored
// under its version, and separately from typed and metadata informers of the same
// resource. The file does not contain the kind of the resource, because no request needs
// it; each object contains its kind. Secrets are held in memory unless the backend has an
// encryption key.
package dynamicinformer
