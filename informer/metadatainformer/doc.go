// Package metadatainformer is client-go's metadatainformer on a persistent store:
// informers of objects' metadata, by resource, that start with what the last
// process left and resume their watch.
//
// # Usage
//
// NewFactory takes the place of client-go's NewFilteredSharedInformerFactory, and
// the Factory that of its SharedInformerFactory; all else stays:
//
//	persistent, err := informer.NewFactory(db, cfg, informer.FactoryOptions{})
//	client, err := metadata.NewForConfig(cfg)
//	factory := metadatainformer.NewFactory(persistent, client, metadatainformer.Options{})
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
// stored under its version, and apart from typed and dynamic informers of it. The
// file does not say its kind, since nobody asks the server for that. Secrets are
// held in memory unless the backend has a key.
//
// There is no option for a transform: set it on the informer that ForResource
// returns, before it is started.
package metadatainformer
