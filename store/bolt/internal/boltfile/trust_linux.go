package boltfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// NetworkFileSystems are file systems that several machines can mount at a time, or a
// guest and its host, by the magic number of statfs(2). Their locks are those of one
// machine, or their mapped memory does not show what another one has written, so that two
// processes could write to one file.
var NetworkFileSystems = map[int64]string{
	unix.NFS_SUPER_MAGIC:  "NFS",
	unix.SMB_SUPER_MAGIC:  "SMB",
	unix.CIFS_SUPER_MAGIC: "CIFS",
	unix.SMB2_SUPER_MAGIC: "SMB",
	unix.NCP_SUPER_MAGIC:  "NCP",
	unix.V9FS_MAGIC:       "9P",
	unix.AFS_SUPER_MAGIC:  "AFS",
	unix.AFS_FS_MAGIC:     "AFS",
	unix.CODA_SUPER_MAGIC: "Coda",
	unix.CEPH_SUPER_MAGIC: "CephFS",

	// virtiofs, sshfs, GlusterFS, s3fs and others, which the number does not tell apart
	// from those of one machine.
	unix.FUSE_SUPER_MAGIC: "FUSE",

	// Several machines have the disk.
	unix.OCFS2_SUPER_MAGIC: "OCFS2",
	0x01161970:             "GFS2",
	0x0BD00BD0:             "Lustre",
	0x47504653:             "GPFS",
	0x19830326:             "BeeGFS",
	0x20030528:             "OrangeFS",
	0xAAD7AAEA:             "PanFS",
	0xBEEFDEAD:             "StorNext",
	0x61636673:             "ACFS",
	0x013111A8:             "Ibrix",

	// The host of a virtual machine has the files, too.
	unix.HOSTFS_SUPER_MAGIC: "hostfs",
	0x786F4256:              "vboxsf",
	0xBACBACBC:              "vmhgfs",
	0x7C7C6673:              "prl_fs",
}

// LocalFileSystems are those that one kernel writes, or that forget with it.
var LocalFileSystems = map[int64]bool{
	unix.EXT4_SUPER_MAGIC:      true, // ext2 and ext3, too
	unix.XFS_SUPER_MAGIC:       true,
	unix.BTRFS_SUPER_MAGIC:     true,
	unix.BCACHEFS_SUPER_MAGIC:  true,
	unix.F2FS_SUPER_MAGIC:      true,
	unix.TMPFS_MAGIC:           true,
	unix.RAMFS_MAGIC:           true,
	unix.OVERLAYFS_SUPER_MAGIC: true,
	unix.ECRYPTFS_SUPER_MAGIC:  true,
	unix.MSDOS_SUPER_MAGIC:     true,
	unix.EXFAT_SUPER_MAGIC:     true,
	unix.NILFS_SUPER_MAGIC:     true,
	unix.REISERFS_SUPER_MAGIC:  true,
	0x2FC12FC1:                 true, // ZFS
	0x3153464A:                 true, // JFS
	0x7366746E:                 true, // NTFS
	0x61756673:                 true, // aufs
}

// fileSystem returns the name of the network file system that f is on, or "". known
// reports whether the file system is known at all.
func fileSystem(f *os.File) (network string, known bool) {
	var stat unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &stat) != nil {
		return "", false
	}
	magic := int64(uint32(stat.Type))
	network = NetworkFileSystems[magic]
	return network, network != "" || LocalFileSystems[magic]
}
