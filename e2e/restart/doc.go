// Package restart holds end-to-end tests of informers in a separate process on a real API
// server. The process is killed and restarted while objects change, history is lost or
// rewound, and the network is slow.
package restart
