package mem_test

import (
	"testing"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/mem"
	"github.com/informctl/informctl/store/storetest"
)

func config() storetest.Config {
	return storetest.Config{Open: func(*testing.T, string) store.Backend { return mem.New() }}
}

func TestSuite(t *testing.T) { storetest.Run(t, config()) }

func TestModel(t *testing.T) { storetest.RunModel(t, config()) }
