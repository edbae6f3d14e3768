package consumers_test

import (
	"strings"
	"testing"

	"github.com/informctl/informctl/cmd/informctl/internal/cmd/consumers"
	"github.com/informctl/informctl/durable"
)

// TestSharedErrors checks that consumers says which consumer cannot share, and why.
func TestSharedErrors(t *testing.T) {
	got := consumers.SharedErrors([]durable.Status{{Name: "a"}, {Name: "b", SharedError: "no rights"}})
	if len(got) != 1 || !strings.Contains(got[0], "consumer b") || !strings.Contains(got[0], "no rights") {
		t.Errorf("notes %q", got)
	}
}
