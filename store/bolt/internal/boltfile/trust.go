package boltfile

import (
	"fmt"
	"os"
	"syscall"
)

// NetworkFSError reports a file on a file system that several machines can share, which
// is not opened unless Options.AllowNetworkFS is set. The file is not changed.
type NetworkFSError struct {
	Path       string
	FileSystem string // NFS, for example
}

// Error names the file and its file system, and suggests what to do.
func (e *NetworkFSError) Error() string {
	return fmt.Sprintf("%s is on %s, where locks and mapped memory cannot be trusted; use a local disk, or set AllowNetworkFS", e.Path, e.FileSystem)
}

// checkTrust rejects a file that is not owned by the process alone: another user, hard
// link or writer could change it between two reads. The group may write, because a Pod's
// fsGroup has that effect. For a reader only the file system is checked, because a reader
// trusts no file. A file system that is not known is logged.
func checkTrust(f *os.File, path string, info os.FileInfo, opts *Options) error {
	if !opts.AllowNetworkFS {
		name, known := fileSystem(f)
		if name != "" {
			return &NetworkFSError{Path: path, FileSystem: name}
		}
		if !known && !opts.ReadOnly {
			opts.Logger.Info("The file system of the cache file is not known, only one machine may write to it", "path", path)
		}
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if opts.ReadOnly || !ok {
		return nil
	}
	switch uid := os.Geteuid(); {
	case int(stat.Uid) != uid:
		return fmt.Errorf("%s belongs to user %d, and this process is user %d: remove it or run as its owner", path, stat.Uid, uid)
	case stat.Nlink > 1:
		return fmt.Errorf("%s has %d names (hard links): it must have one", path, stat.Nlink)
	case info.Mode().Perm()&0o002 != 0:
		return fmt.Errorf("%s may be written by everybody (mode %04o): chmod o-w it, or remove it", path, info.Mode().Perm())
	}
	return nil
}

// closeToOthers takes away what other users may do with a file, because it contains data
// of the cluster. A file that is not a cache keeps its mode.
func closeToOthers(f *os.File, path string, info os.FileInfo) error {
	mode := info.Mode().Perm()
	if mode&0o007 == 0 {
		return nil
	}
	if err := f.Chmod(mode &^ 0o007); err != nil {
		return fmt.Errorf("%s may be read by everybody (mode %04o): %w", path, mode, err)
	}
	return nil
}
