package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv(role) != "" {
		if err := run(context.Background()); err != nil { //nolint:forbidigo // of a child process
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestTable measures a few kinds once, so that the command is not found broken when it is
// needed.
func TestTable(t *testing.T) {
	var out bytes.Buffer
	if err := measureAll(t.Context(), 3, 1, 0, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 2+2*len(sides) {
		t.Errorf("%d lines:\n%s", n, &out)
	}
}
