package cmdutil

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// CompleteFlag makes a shell complete the value of a flag. It panics if the command has a
// completion of it.
func CompleteFlag(cmd *cobra.Command, name string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic(err) // it was registered twice
	}
}

// CompleteWords makes a shell complete the value of a flag to one of words.
func CompleteWords(cmd *cobra.Command, name string, words ...cobra.Completion) {
	CompleteFlag(cmd, name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// CompleteContext makes a shell complete --context from the kubeconfig.
func CompleteContext(cmd *cobra.Command, kube *genericclioptions.ConfigFlags) {
	CompleteFlag(cmd, "context", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		raw, err := kube.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return cobra.AppendActiveHelp(nil, OneLine(err)), cobra.ShellCompDirectiveNoFileComp
		}
		return sets.List(sets.KeySet(raw.Contexts)), cobra.ShellCompDirectiveNoFileComp
	})
}
