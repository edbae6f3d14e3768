//go:build !linux

package controlplane

import "syscall"

// dieWithParent changes nothing: only Linux has a way.
func dieWithParent() *syscall.SysProcAttr { return nil }
