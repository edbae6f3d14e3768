package bolt

import "github.com/informctl/informctl/store/bolt/internal/boltfile"

// SetNetworkFS adds a file system, by its magic number, to those that are refused.
func SetNetworkFS(magic int64, name string) (restore func()) {
	boltfile.NetworkFileSystems[magic] = name
	return func() { delete(boltfile.NetworkFileSystems, magic) }
}

// SetLocalFS makes a file system, by its magic number, known as a local one or not.
func SetLocalFS(magic int64, known bool) (restore func()) {
	was := boltfile.LocalFileSystems[magic]
	boltfile.LocalFileSystems[magic] = known
	return func() { boltfile.LocalFileSystems[magic] = was }
}

// NetworkFS returns the name of a file system that several machines can mount, by its
// magic number, or "".
func NetworkFS(magic int64) string { return boltfile.NetworkFileSystems[magic] }
