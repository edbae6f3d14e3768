// Package deploy tests the files in deploy/ for a cluster: a real API server accepts each
// manifest, the programs run with the rights in the manifests, and the Dockerfile passes
// a linter.
package deploy
