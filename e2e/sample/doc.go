// Package sample holds end-to-end tests of examples/samplecontroller in a separate
// process on a real API server. The process is killed and restarted.
package sample
