// Package dynamicinformer is client-go's dynamicinformer on a persistent store:
// informers of unstructured objects, by resource, that start with the objects that
// the last process left and resume their watch.
//
// # Usage
//
// NewFactory takes the place of client-go's NewFilteredDynamicSharedInformerFactory,
// and the Factory that of its DynamicSharedInformerFactory; all else stays:
//
//	persistent, err := informer.NewFactory(db, cfg, informer.FactoryOptions{})
//	client, err := dynamic.NewForConfig(cfg)
//	factory := dynamicinformer.NewFactory(persistent, client, dynamicinformer.Options{})
//
// The client has to be made from the configuration that informer.NewFactory was
// given, and after it. The informers of another client are not persisted, which is
// logged.
//
// # Concurrency
//
// A Factory is safe for concurrent use. Each informer that was started has
// goroutines of its own until its context ends; Shutdown waits for them.
//
// # Compatibility
//
// What handlers and listers see is what package informer says. A resource is
// stored under its version, and apart from typed and metadata informers of it. The
// file does not say its kind, since nobody asks the server for that; each object
// does. Secrets are held in memory unless the backend has a key.
package dynamicinformer
