// Package restart holds the end-to-end tests: informers in a process of their
// own, on a real API server, which is killed and started again while objects
// change, history is lost or rewound, and the network is slow.
package restart
