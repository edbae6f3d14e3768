// Package dockerfile holds the tests of deploy/Dockerfile, which cannot be built
// where there is no container runtime: it is linted by BuildKit's own linter, which
// "docker build --check" is. It is a module of its own for the sake of everybody
// else's dependencies.
package dockerfile
