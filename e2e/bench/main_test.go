package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain turns the test's binary into a server or a child if the command under test has
// started it.
func TestMain(m *testing.M) {
	done, err := play(context.TODO())
	if !done {
		goleak.VerifyTestMain(m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
