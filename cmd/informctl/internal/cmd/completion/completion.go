// Package completion is the command that prints a script that completes command lines in
// a shell.
package completion

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
)

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print a script that completes command lines in a shell",
		Long: cmdutil.Describe(`Print a script that completes command lines in a shell, for the shell to source.

It completes commands, flags, formats and contexts and, of query, dump, watch and
history, what the file holds, or the process that keeps it: resources, names, namespaces
and indexes. In bash and zsh a line says which file that is.`),
		Example: `  source <(informctl completion bash)
  informctl completion fish > informctl.fish`,
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		Args: func(cmd *cobra.Command, args []string) error {
			if cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)(cmd, args) != nil {
				return cmdutil.Usagef(cmd, "completion takes one of bash, zsh, fish, powershell")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.Output(func(w io.Writer) error {
				switch root := cmd.Root(); args[0] {
				case "bash":
					return root.GenBashCompletionV2(w, true)
				case "zsh":
					return root.GenZshCompletion(w)
				case "fish":
					return root.GenFishCompletion(w, true)
				default:
					return root.GenPowerShellCompletionWithDesc(w)
				}
			})
		},
	}
}
