package bolt_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
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
	other := path + ".other"
	if _, err := bolt.Open(other, bolt.Options{}); err == nil {
		t.Error("a new file is not refused")
	}
	wantPattern(t, other+"*", 0)
}

// TestSharedFS checks that file systems are known that several machines can mount, or a
// guest and its host.
func TestSharedFS(t *testing.T) {
	for name, magic := range map[string]int64{
		"NFS": 0x6969, "SMB": 0x517B, "CIFS": 0xFF534D42, "SMB2": 0xFE534D42, "NCP": 0x564C, "9P": 0x01021997,
		"AFS": 0x5346414F, "kAFS": 0x6B414653, "Coda": 0x73757245, "CephFS": 0x00C36400, "FUSE": 0x65735546,
		"OCFS2": 0x7461636F, "GFS2": 0x01161970, "Lustre": 0x0BD00BD0, "GPFS": 0x47504653, "BeeGFS": 0x19830326,
		"OrangeFS": 0x20030528, "hostfs": 0x00C0FFEE, "vboxsf": 0x786F4256, "vmhgfs": 0xBACBACBC, "prl_fs": 0x7C7C6673,
	} {
		if bolt.NetworkFS(magic) == "" {
			t.Errorf("%s (%#x) is not known", name, magic)
		}
	}
	for name, magic := range map[string]int64{"ext4": 0xEF53, "XFS": 0x58465342, "btrfs": 0x9123683E, "tmpfs": 0x01021994, "overlay": 0x794C7630} {
		if got := bolt.NetworkFS(magic); got != "" {
			t.Errorf("%s is %s", name, got)
		}
	}
}

// TestUnknownFS checks that a file on a file system that is not known is used, and that
// the log says so.
func TestUnknownFS(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	scriptFile(t, path, small, 3)
	var stat unix.Statfs_t
	must(t, unix.Statfs(path, &stat))
	const line = "is not known, only one machine may write to it"
	for _, known := range []bool{true, false} {
		defer bolt.SetLocalFS(int64(uint32(stat.Type)), known)()
		var lines strings.Builder
		logger := funcr.New(func(_, args string) { lines.WriteString(args) }, funcr.Options{})
		db, s := mustOpenScript(t, path, bolt.Options{Logger: logger})
		wantState(t, s, small, 3)
		must(t, db.Close())
		if strings.Contains(lines.String(), line) == known {
			t.Errorf("known: %v, logged: %s", known, lines.String())
		}
	}
}
