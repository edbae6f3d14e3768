// Package controlplane runs a real kube-apiserver on a real etcd, both built from their Go modules.
//
// # Usage
//
//	cp, err := controlplane.Start(ctx, controlplane.Options{Dir: t.TempDir()})
//	...
//	defer cp.Stop()
//	client, err := kubernetes.NewForConfig(cp.Config())
//
// The go command must run in this package's module, as it does in its tests, because it builds the two binaries. The
// first build takes minutes; cmd/controlplane -build-only does it ahead.
//
// No kubelet, controller or scheduler runs: objects stay as they are written. The admission plugins that want
// controllers are off, so pods can be created in any namespace with any service account. [Load] fills the server.
//
// Methods lose history on purpose: [ControlPlane.RestartAPIServer] empties the watch cache, [ControlPlane.Compact]
// forgets old revisions and [ControlPlane.Restore] goes back to a snapshot's revision.
//
// # Concurrency
//
// Config, Kubeconfig and Requests are safe for concurrent use. Everything else that a ControlPlane has must be called
// from one goroutine at a time.
//
// # Processes
//
// The two processes live until Stop. On Linux the kernel kills them when the process that started them ends, however
// it ends. They do not survive a crash of the machine with their data: etcd runs without fsync.
package controlplane
