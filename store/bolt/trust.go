package bolt

import (
	"fmt"
	"os"
	"syscall"
)

// NetworkFSError reports a file on a network, which Open and OpenReadOnly refuse
// unless Options.AllowNetworkFS is set. The file is unchanged.
type NetworkFSError struct {
	Path       string
	FileSystem string // NFS, for example
}

// Error says what would be right, to who can set options.
func (e *NetworkFSError) Error() string {
	return fmt.Sprintf("%s is on %s, where locks and mapped memory cannot be trusted; use a local disk, or set AllowNetworkFS", e.Path, e.FileSystem)
}

// checkTrust refuses a file that is not the process's own alone: another user, name
// or group of writers could change it between two reads. The group may write, since
// a Pod's fsGroup makes it so. A reader checks nothing but the file system: it
// believes no file.
func checkTrust(f *os.File, path string, info os.FileInfo, opts *Options, readOnly bool) error {
	if !opts.AllowNetworkFS {
		if name := networkFS(f); name != "" {
			return &NetworkFSError{Path: path, FileSystem: name}
		}
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if readOnly || !ok {
		return nil
	}
	switch uid := os.Geteuid(); {
	case int(stat.Uid) != uid:
		return fmt.Errorf("%s belongs to user %d, and this process is user %d: remove it or run as its owner", path, stat.Uid, uid)
	case stat.Nlink > 1:
		return fmt.Errorf("%s has %d names (hard links): it must have one", path, stat.Nlink)
	case info.Mode().Perm()&0o002 != 0:
		return fmt.Errorf("%s may be written by everybody (mode %04o): chmod o-w it, or remove it", path, info.Mode().Perm())
	case info.Mode().Perm()&0o007 != 0:
		// What it holds is the cluster's, and others' eyes were never asked for.
		if err := f.Chmod(info.Mode().Perm() &^ 0o007); err != nil {
			return fmt.Errorf("%s may be read by everybody (mode %04o): %w", path, info.Mode().Perm(), err)
		}
	}
	return nil
}
