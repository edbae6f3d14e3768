package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// machineText describes the machine that the command runs on.
func machineText() (string, error) {
	cpus, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	model := "unknown CPU"
	for line := range strings.Lines(string(cpus)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	memory, err := procNumber("/proc/meminfo", "MemTotal:")
	if err != nil {
		return "", err
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, %d cores, %.0f GB of memory, Linux %s, %s %s",
		model, runtime.NumCPU(), float64(memory<<10)/1e9, strings.TrimSpace(string(kernel)), runtime.Version(), runtime.GOARCH), nil
}

// loadAverage returns the load average of the last minute.
func loadAverage() (string, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "", err
	}
	return strings.Fields(string(text))[0], nil
}
