package run

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/cmd/informctl/internal/cluster"
	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/complete"
)

// addCompletion makes a shell complete the resources that run can follow from the server
// of the kubeconfig.
func (o *options) addCompletion(cmd *cobra.Command) {
	cmd.ValidArgsFunction = o.completeServed
	cmdutil.CompleteFlag(cmd, "exclude", o.completeServed)
}

func (o *options) completeServed(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	all, host, err := cluster.Served(cmd.Context(), o.kube)
	if err != nil {
		return cobra.AppendActiveHelp(nil, cmdutil.OneLine(err)), cobra.ShellCompDirectiveNoFileComp
	}
	names := make([]string, 0, len(all.Followed))
	for _, m := range all.Followed {
		if !slices.Contains(args, cluster.NameOf(m)) {
			names = append(names, cluster.NameOf(m))
		}
	}
	words, directive := complete.Matching(complete.Prefixed(prefix[:strings.LastIndex(prefix, ",")+1], names), prefix)
	return cobra.AppendActiveHelp(words, "from "+host), directive
}
