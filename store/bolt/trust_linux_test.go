package bolt_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/informctl/informctl/store/bolt"
)

// TestNetworkFS checks that a file on a network file system is refused unless that is
// allowed. The specific error lets a program tell its user what to do.
func TestNetworkFS(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	scriptFile(t, path, small, 3)
	var stat unix.Statfs_t
	must(t, unix.Statfs(path, &stat))
	defer bolt.SetNetworkFS(int64(uint32(stat.Type)), "NFS")()
	for what, open := range map[string]func(string, bolt.Options) (*bolt.DB, error){
		"Open": bolt.Open, "OpenReadOnly": bolt.OpenReadOnly,
	} {
		_, err := open(path, bolt.Options{})
		var refused *bolt.NetworkFSError
		if !errors.As(err, &refused) || refused.Path != path || refused.FileSystem != "NFS" || !strings.Contains(err.Error(), "AllowNetworkFS") {
			t.Errorf("%s: error is %v", what, err)
		}
		db, err := open(path, bolt.Options{AllowNetworkFS: true})
		must(t, err)
		must(t, db.Close())
	}
}
