package serve

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/serving"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/relay"
)

// NewKubeconfigCommand returns the command.
func NewKubeconfigCommand(e cmdutil.Env) *cobra.Command {
	var file source.FileFlags
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of the kubeconfig of what serves a file",
		Long: cmdutil.Describe(`Print the path of the kubeconfig of what serves a file.

That is informctl run --serve, or else informctl serve. It is an error if neither
answers.`),
		Example: `  informctl kubeconfig --db informers.db
  export KUBECONFIG="$(informctl kubeconfig)"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, path := range []string{serving.RunPath(file.Path), serving.FilePath(file.Path)} {
				if relay.Answers(cmd.Context(), path) {
					return e.Output(func(w io.Writer) error {
						_, err := fmt.Fprintln(w, path)
						return err
					})
				}
			}
			return fmt.Errorf("nothing serves %s; informctl run --serve does while it follows a cluster, and informctl serve does without one", file.Path)
		},
	}
	file.AddPath(e, cmd)
	return cmd
}
