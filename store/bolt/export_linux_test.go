package bolt

// SetNetworkFS adds a file system, by its magic number, to those that are refused.
func SetNetworkFS(magic int64, name string) (restore func()) {
	networkFileSystems[magic] = name
	return func() { delete(networkFileSystems, magic) }
}

// SetLocalFS makes a file system, by its magic number, known as a local one or not.
func SetLocalFS(magic int64, known bool) (restore func()) {
	was := localFileSystems[magic]
	localFileSystems[magic] = known
	return func() { localFileSystems[magic] = was }
}

// NetworkFS returns the name of a file system that several machines can mount, by its
// magic number, or "".
func NetworkFS(magic int64) string { return networkFileSystems[magic] }
