// Package informers provides client-go's SharedInformerFactory with a persistent store:
// each of its informers starts with the objects that the last process has stored, and
// resumes its watch.
//
// # Usage
//
// NewFactory replaces client-go's NewSharedInformerFactory; everything else stays:
//
//	persistent, err := informer.NewFactory(db, cfg, informer.FactoryOptions{})
//	client, err := kubernetes.NewForConfig(cfg)
//	factory := informers.NewFactory(persistent, client, informers.Options{})
//
// The client must be created after informer.NewFactory and from the same configuration.
// The informers of any other client are not persisted; this is logged.
//
// # Which informers are persistent
//
// Those of all types that the client has, as Core().V1().Pods() and ForResource return
// them. InformerFor calls the constructor that it is given, as client-go's does: for a
// type with indexes or a selector of its own, give it one that calls
// informer.Factory.NewInformer. Factories that informer-gen has generated for custom
// resources take informers from InformerFor as well; informer.For makes one without them.
//
// # Concurrency
//
// The factory is safe for concurrent use. Each started informer has its own goroutines
// until its context ends; Shutdown waits for them.
//
// # Compatibility
//
// For the behaviour of handlers and listers, see package informer. Metrics of client-go's
// InformerName are not published. Secrets are held in memory unless the backend has an
// encryption key.
package informers
