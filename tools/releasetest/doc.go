// Package releasetest tests what users get of a release: tools/release, which tags it,
// and the modules, which the go command installs from a module proxy. It is a module of
// its own, so that the library does not require what it imports.
package releasetest
