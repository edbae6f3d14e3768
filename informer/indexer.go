package informer

import (
	"errors"

	"github.com/informctl/informctl/store"
)

// newIndexer returns the cache.Indexer of the informer's store: the store in memory
// before Run, the opened store afterwards.
func (inf *Informer) newIndexer() *store.CacheIndexer {
	return store.IndexerOf(store.IndexerEnv{
		Store: inf.present, Whole: inf.whole, Noted: inf.noticed,
		Handed: inf.mutations.AddObject, AddIndexers: inf.AddIndexers,
	})
}

// rememberRV has the indexer remember the stored resource version, for readers that ask
// when the store has lost it.
func (inf *Informer) rememberRV() { _ = inf.indexer.LastStoreSyncResourceVersion() }

// whole reads for methods that return no error. If stored objects are damaged or were
// wiped and the informer runs, it waits until a new list has repaired them, instead of
// returning fewer objects.
func (inf *Informer) whole(read func(store.Store) error) error {
	for {
		lists := inf.lists.Load()
		err := read(inf.present())
		if err == nil || !isMended(err) || !inf.waitForList(err, lists) {
			return err
		}
	}
}

// isMended reports whether a new list repairs the cause of a read error.
func isMended(err error) bool {
	return errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrWiped)
}

// noticed returns the error of a read, and requests a list if that repairs the cause.
func (inf *Informer) noticed(err error) error {
	if isMended(err) {
		inf.mu.Lock()
		defer inf.mu.Unlock()
		if inf.isOpenedLocked() && inf.phase != ended {
			inf.loseLocked(inf.ctx, err)
		}
	}
	return err
}
