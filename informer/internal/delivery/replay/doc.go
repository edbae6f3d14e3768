// Package replay is what an event handler has beside its queue when it goes on where one
// of an earlier process ended: the place in the log at which it begins, the fences that
// say what it has returned from, and the objects that have departed. It knows neither the
// Hub nor the calls of handlers.
//
// # Concurrency
//
// Fences, a Resumption and Departures have the lock of the Hub, which the caller holds
// for every method. Log.Deliver is called without it.
package replay
