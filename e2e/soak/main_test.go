package soak_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The test binary is also the process that is killed: with this variable it runs informers on a file in that directory,
// and answers commands on its standard input with lines of JSON.
const childDir = "INFORMCTL_SOAK_CHILD"

// maxBytes bounds the child's file, in place of a disk that is full.
const maxBytes = "INFORMCTL_SOAK_MAX_BYTES"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := runChild(context.Background(), dir); err != nil { //nolint:forbidigo // this process is no test
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
