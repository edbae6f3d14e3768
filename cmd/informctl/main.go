// Command informctl keeps Kubernetes objects in a file and reads them from it.
//
// # Usage
//
//	informctl run pods --db informers.db
//	informctl dump pods --db informers.db -o yaml
//	informctl query pods --db informers.db --index namespace=default
//	informctl info --db informers.db
//
// "informctl help COMMAND" describes each command and its exit codes.
package main

import (
	"context"
	"os"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/informctl/informctl/cmd/informctl/internal/cli"
)

func main() {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	os.Exit(cli.Main(context.Background(), streams, os.Args[1:]))
}
