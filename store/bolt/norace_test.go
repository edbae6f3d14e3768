//go:build !race

package bolt_test

const fewer = 1
