package informer

import "github.com/informctl/informctl/store"

// newIndexer returns the cache.Indexer of the informer's store: the store in memory
// before Run, the opened store afterwards.
func (inf *Informer) newIndexer() *store.CacheIndexer {
	return store.IndexerOf(store.IndexerEnv{
		Store: inf.present, Whole: inf.whole, Noted: inf.state.Noticed,
		Handed: inf.mutations.AddObject, AddIndexers: inf.AddIndexers,
	})
}

// rememberRV has the indexer remember the stored resource version, for readers that ask
// when the store has lost it.
func (inf *Informer) rememberRV() { _ = inf.indexer.LastStoreSyncResourceVersion() }

// whole reads the present store. It blocks while a list repairs what the read needs.
func (inf *Informer) whole(read func(store.Store) error) error {
	return inf.state.Whole(func() error { return read(inf.present()) })
}
