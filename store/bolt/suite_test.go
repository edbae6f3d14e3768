package bolt_test

import (
	"path/filepath"
	"testing"

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

func TestSuite(t *testing.T) { storetest.Run(t, config()) }

func TestModel(t *testing.T) { storetest.RunModel(t, config()) }
