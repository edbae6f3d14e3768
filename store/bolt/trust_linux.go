package bolt

import (
	"os"

	"golang.org/x/sys/unix"
)

// networkFileSystems are file systems that are known not to provide what bbolt needs, by
// the magic number of statfs(2).
var networkFileSystems = map[int64]string{
	unix.NFS_SUPER_MAGIC:  "NFS",
	unix.SMB_SUPER_MAGIC:  "SMB",
	unix.CIFS_SUPER_MAGIC: "CIFS",
	unix.SMB2_SUPER_MAGIC: "SMB",
	unix.V9FS_MAGIC:       "9P",
	unix.AFS_SUPER_MAGIC:  "AFS",
	unix.CEPH_SUPER_MAGIC: "CephFS",
}

// networkFS returns the name of the network file system that f is on, or "" if it is on
// no known one.
func networkFS(f *os.File) string {
	var stat unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &stat) != nil {
		return ""
	}
	return networkFileSystems[int64(uint32(stat.Type))]
}
