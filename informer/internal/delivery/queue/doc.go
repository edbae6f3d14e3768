// Package queue is the queue of one event handler. Its first notifications are in memory,
// and those behind them are spilled to files in parts, the chunks. It knows neither
// handlers nor stores.
//
// # Concurrency
//
// All queues of a Hub have one lock, the Hub's. The caller holds it for every method but
// Chunk.Write, and reads a file without it (Queue.Load).
package queue
