// Package relayfigures measures what informctl run --serve and informctl serve take for
// lists, and the former for watches, beside a kube-apiserver in the same run.
package relayfigures
