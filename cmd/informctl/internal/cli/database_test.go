package cli_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/informctl/informctl/cmd/informctl/internal/cli"
	"github.com/informctl/informctl/store/bolt"
)

// TestNetworkFS checks that the error for a file on a network file system suggests --db,
// and not an option of the library, which the user of the command cannot set.
func TestNetworkFS(t *testing.T) {
	err := fmt.Errorf("open cache: %w", &bolt.NetworkFSError{Path: "dir/x.db", FileSystem: "NFS"})
	got := cli.OpenError("x.db", err).Error()
	if !strings.HasPrefix(got, "x.db is on NFS") || !strings.Contains(got, "--db") || strings.Contains(got, "AllowNetworkFS") {
		t.Errorf("error is %q", got)
	}
}
