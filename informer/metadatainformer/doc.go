// Package metadatainformer provides client-go's metadatainformer with a persistent store:
// informers of objects' metadata, by resource, that start with the metadata that the last
// process has stored and resume their watch.
//
// # Usage
//
// NewFactory replaces client-go's NewFilteredSharedInformerFactory, and Factory replaces
// its SharedInformerFactory; everything else stays:
//
//	persistent, err := informer.NewFactory(db, cfg, informer.FactoryOptions{})
//	client, err := metadata.NewForConfig(cfg)
//	options := metadatainformer.Options{}
//	factory := metadatainformer.NewFactory(persistent, client, options)
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
// under its version, and separately from typed and dynamic informers of the same
// resource. The file does not contain the kind of the resource, because no request needs
// it. Secrets are held in memory unless the backend has an encryption key.
//
// There is no option for a transform: set it on the informer that ForResource returns,
// before the informer is started.
package metadatainformer
