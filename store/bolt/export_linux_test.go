package bolt

// SetNetworkFS adds a file system, by its magic number, to those that are refused.
func SetNetworkFS(magic int64, name string) (restore func()) {
	networkFileSystems[magic] = name
	return func() { delete(networkFileSystems, magic) }
}
