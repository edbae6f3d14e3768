//go:build !race

package durable_test

const fewer = 1
