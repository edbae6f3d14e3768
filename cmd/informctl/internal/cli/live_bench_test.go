package cli_test

import (
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// benchPods is the size of the collection in the promises: pods of 10 KB in 50
// namespaces.
const benchPods = 50_000

func benchFile(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		b.Fatal(err)
	}
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	s, err := db.Open(store.Scope{Resource: "pods", Kind: kind, Form: store.Typed},
		store.Options{Codec: codec.ForKind(kind), Indexes: []index.Index{index.Namespace(), index.NodeName()}})
	if err != nil {
		b.Fatal(err)
	}
	list, err := s.Relist()
	if err != nil {
		b.Fatal(err)
	}
	for i := range benchPods {
		if err := list.Add(testobjects.Pod(i, 1)); err != nil {
			b.Fatal(err)
		}
	}
	for batch, err := range list.Parts("1000") {
		if err == nil {
			err = s.Apply(batch)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
	return path
}

// BenchmarkReading runs a command in a separate process, on a closed file and on a file
// that a process holds.
func BenchmarkReading(b *testing.B) {
	path := benchFile(b)
	for _, holder := range []string{"closed", "live"} {
		if holder == "live" {
			_, stop := hold(b, path)
			defer stop()
		}
		for name, args := range map[string][]string{
			"version":           {"version"},
			"namespace":         {"query", "pods", "-n", "ns-07"},
			"namespace as JSON": {"query", "pods", "-n", "ns-07", "-o", "json"},
			"count":             {"dump", "--count"},
			"table of all":      {"dump", "pods"},
		} {
			b.Run(holder+"/"+name, func(b *testing.B) {
				var cpu time.Duration
				for b.Loop() {
					ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
					cmd := exec.CommandContext(ctx, "informctl", append(args, "--db", path)...)
					if args[0] == "version" {
						cmd.Args = cmd.Args[:2]
					}
					cmd.Stdout = io.Discard
					if err := cmd.Run(); err != nil {
						b.Fatal(err)
					}
					cancel()
					cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
				}
				b.ReportMetric(float64(cpu.Milliseconds())/float64(b.N), "cpu-ms/op")
			})
		}
	}
}
