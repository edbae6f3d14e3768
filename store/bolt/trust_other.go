//go:build !linux

package bolt

import "os"

// networkFS knows file systems on Linux only.
func networkFS(*os.File) string { return "" }
