package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain makes the test's binary a server or a child where the command under
// test starts itself again.
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
