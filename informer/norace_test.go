//go:build !race

package informer_test

const fewer = 1
