package cli

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// pluginName is the name by which kubectl finds the program as "kubectl informer".
const pluginName = "kubectl-informer"

// sayAsCalled makes help, usage and examples say "kubectl informer" where kubectl has
// called the program.
func sayAsCalled(root *cobra.Command, program string) {
	if filepath.Base(program) != pluginName {
		return
	}
	const called = "kubectl informer"
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: called}
	var names []string
	for _, cmd := range root.Commands() {
		names = append(names, regexp.QuoteMeta(cmd.Name()))
	}
	line := regexp.MustCompile(`\b` + root.Name() + ` (` + strings.Join(names, "|") + `)\b`)
	for _, cmd := range slices.Concat(root.Commands(), []*cobra.Command{root}) {
		cmd.Long = line.ReplaceAllString(cmd.Long, called+" $1")
		cmd.Example = line.ReplaceAllString(cmd.Example, called+" $1")
	}
}
