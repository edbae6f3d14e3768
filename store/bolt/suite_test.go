package bolt_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
	"github.com/informctl/informctl/store/storetest"
)

func config() storetest.Config {
	return storetest.Config{Persistent: true, Open: func(t *testing.T, dir string) store.Backend {
		db, err := bolt.Open(filepath.Join(dir, "informers.db"), bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}}
}

// theKey is the encryption key of tests.
var theKey = fixedKeys{{1, 2, 3}}

// fixedKeys is a provider that returns itself.
type fixedKeys []codec.Key

func (k fixedKeys) Keys(context.Context) ([]codec.Key, error) { return k, nil }

func encrypted() storetest.Config {
	return storetest.Config{Persistent: true, Open: func(t *testing.T, dir string) store.Backend {
		db, err := bolt.Open(filepath.Join(dir, "informers.db"), bolt.Options{Keys: theKey, EncryptAll: true})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}}
}

func TestSuiteEncrypted(t *testing.T) {
	t.Parallel()
	storetest.Run(t, encrypted())
}

func TestModelEncrypted(t *testing.T) {
	t.Parallel()
	storetest.RunModel(t, encrypted())
}

func TestSuite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, config())
}

func TestModel(t *testing.T) {
	t.Parallel()
	storetest.RunModel(t, config())
}

// decodedBackend keeps all objects decoded.
type decodedBackend struct{ store.Backend }

func (b decodedBackend) Open(scope store.Scope, opts store.Options) (store.Store, error) {
	opts.DecodedBytes = -1
	return b.Backend.Open(scope, opts)
}

func TestModelDecoded(t *testing.T) {
	t.Parallel()
	cfg := config()
	open := cfg.Open
	cfg.Open = func(t *testing.T, dir string) store.Backend { return decodedBackend{open(t, dir)} }
	storetest.RunModel(t, cfg)
}
