package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersionCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of informctl",
		Long:  describe("Print the version of informctl, of Go and the platform."),
		Example: `  informctl version
  informctl version | cut -d' ' -f2`,
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			return e.output(func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "informctl %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
				return err
			})
		},
	}
}

// version returns the module version from Go's build information, "(devel)" if it is
// unknown.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
