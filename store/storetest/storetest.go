// Package storetest is the suite that every backend of the persistent informer
// passes: the contract of package store as tests.
//
// # Usage
//
// A backend's own tests hand [Run] and [RunModel] a way to open it:
//
//	func TestStore(t *testing.T) {
//		cfg := storetest.Config{Open: open, Persistent: true}
//		t.Run("suite", func(t *testing.T) { storetest.Run(t, cfg) })
//		t.Run("model", func(t *testing.T) { storetest.RunModel(t, cfg) })
//	}
//
// Differences are printed as cmp.Diff does: - is what the contract asks for, +
// is what the backend has.
//
// # Concurrency
//
// The suite starts goroutines and ends all of them before it returns, so that
// its caller can look for leaks. It is meant to run under the race detector.
package storetest

import (
	"testing"

	"github.com/informctl/informctl/store"
)

// Config says how a backend is opened and what is to be expected of it.
type Config struct {
	// Open opens the backend in a directory, which exists. It fails the test if
	// it cannot. The suite closes what it got before it opens the directory
	// again.
	Open func(t *testing.T, dir string) store.Backend
	// Persistent says that a backend which is closed and opened again in the
	// same directory has what was stored, that its objects are decoded afresh
	// and that it knows their encoded size. Of others that is expected only of
	// a scope that is closed and opened again in one backend.
	Persistent bool
}

// Run runs the whole suite, each rule as one subtest with a new backend.
func Run(t *testing.T, cfg Config) {
	for _, group := range []struct {
		name  string
		cases []testCase
	}{
		{"Indexer", indexerCases},
		{"Batch", batchCases},
		{"Iteration", iterationCases},
		{"Query", queryCases},
		{"Reopen", reopenCases},
		{"Relist", relistCases},
		{"Departed", departedCases},
		{"Lifecycle", lifecycleCases},
		{"Concurrency", concurrencyCases},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.cases {
				t.Run(c.name, func(t *testing.T) { c.run(newHarness(t, cfg)) })
			}
		})
	}
}

// testCase is one rule of the contract.
type testCase struct {
	name string
	run  func(h *harness)
}
