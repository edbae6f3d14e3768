package soak_test

import (
	"testing"

	"github.com/informctl/informctl/e2e/child"
)

// childDir is the environment variable with the directory in which a child runs informers
// on a file.
const childDir = "INFORMCTL_SOAK_CHILD"

// maxBytes is the environment variable that limits the size of the child's file, in place
// of a full disk.
const maxBytes = "INFORMCTL_SOAK_MAX_BYTES"

func TestMain(m *testing.M) { child.Main(m, childDir, runChild) }
