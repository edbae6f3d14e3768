// Package relayclients tests informctl run --serve and informctl serve with kubectl,
// client-go, controller-runtime and the clients of other languages, against a real API
// server that is stopped and started.
package relayclients
