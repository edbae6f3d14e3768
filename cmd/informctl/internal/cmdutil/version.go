package cmdutil

import "runtime/debug"

// Version returns the module version from Go's build information, "(devel)" if it is
// unknown.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
