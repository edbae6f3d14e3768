// Package storetest is the conformance suite for backends of the persistent informer: it
// tests the contract of package store.
//
// # Usage
//
// The tests of a backend call [Run] and [RunModel] with a function that opens the
// backend:
//
//	func TestStore(t *testing.T) {
//		cfg := storetest.Config{Open: open, Persistent: true}
//		t.Run("suite", func(t *testing.T) { storetest.Run(t, cfg) })
//		t.Run("model", func(t *testing.T) { storetest.RunModel(t, cfg) })
//	}
//
// Differences are printed in the format of cmp.Diff: - is required by the contract, + is
// the state of the backend.
//
// # Concurrency
//
// The suite starts goroutines and ends all of them before it returns, so that the caller
// can check for leaks. It is meant to run under the race detector.
package storetest

import (
	"testing"

	"github.com/informctl/informctl/store"
)

// Config specifies how a backend is opened and what is expected of it.
type Config struct {
	// Open opens the backend in an existing directory. It fails the test on an error. The
	// suite closes the backend before it opens the same directory again.
	Open func(t *testing.T, dir string) store.Backend
	// Persistent means that a backend keeps its content when it is closed and opened
	// again in the same directory, that it decodes its objects again, and that it knows
	// their encoded size. Other backends must keep only the content of a scope that is
	// closed and opened again in one backend.
	Persistent bool
}

// Run runs the whole suite. Each rule is a subtest with a new backend.
func Run(t *testing.T, cfg Config) {
	for _, group := range []struct {
		name  string
		cases []testCase
	}{
		{"Indexer", indexerCases},
		{"Batch", batchCases},
		{"Iteration", iterationCases},
		{"Query", queryCases},
		{"Payload", payloadCases},
		{"Reopen", reopenCases},
		{"Relist", relistCases},
		{"Departed", departedCases},
		{"Log", logCases},
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
