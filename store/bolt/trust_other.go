//go:build !linux

package bolt

import "os"

// networkFS returns "": network file systems are recognized on Linux only.
func networkFS(*os.File) string { return "" }
