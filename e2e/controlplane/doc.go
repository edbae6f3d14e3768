// Package controlplane runs a real kube-apiserver with a real etcd, both built from their
// Go modules.
//
// # Usage
//
//	cp, err := controlplane.Start(ctx, controlplane.Options{Dir: t.TempDir()})
//	...
//	defer cp.Stop()
//	client, err := kubernetes.NewForConfig(cp.Config())
//
// The package builds the two binaries with the go command, so it must be used in the
// module of this package, as its tests are. The first build takes minutes;
// cmd/controlplane -build-only does it ahead of time. [Kubectl] builds kubectl, for tests
// that need it.
//
// No kubelet, controller or scheduler runs: objects stay as they are written. The
// admission plugins that need controllers are off, so pods can be created in any
// namespace with any service account. [Load] fills the server with objects.
//
// Some methods lose history on purpose: [ControlPlane.RestartAPIServer] empties the watch
// cache, [ControlPlane.Compact] forgets old revisions, and [ControlPlane.Restore] goes
// back to the revision of a snapshot.
//
// # Concurrency
//
// Config, Kubeconfig and Requests are safe for concurrent use. All other methods of a
// ControlPlane must be called from one goroutine at a time.
//
// # Processes
//
// The two processes live until Stop. On Linux the kernel kills them when the process that
// started them ends for any reason. Their data does not survive a crash of the machine:
// etcd runs without fsync.
package controlplane
