package bolt

// SetNetworkFS makes a file system, by its magic number, one that is refused.
func SetNetworkFS(magic int64, name string) (restore func()) {
	networkFileSystems[magic] = name
	return func() { delete(networkFileSystems, magic) }
}
