// Package relayfigures measures what informctl run --serve takes for lists and watches,
// beside a kube-apiserver in the same run.
package relayfigures
