//go:build !linux

package controlplane

import "syscall"

// dieWithParent does nothing: only Linux can kill a child with its parent.
func dieWithParent() *syscall.SysProcAttr { return nil }
