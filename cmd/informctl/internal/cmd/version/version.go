// Package version is the command that prints the version of informctl.
package version

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
)

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of informctl",
		Long:  cmdutil.Describe("Print the version of informctl, of Go and the platform."),
		Example: `  informctl version
  informctl version | cut -d' ' -f2`,
		Args: cmdutil.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			return e.Output(func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "informctl %s %s %s/%s\n", cmdutil.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
				return err
			})
		},
	}
}
