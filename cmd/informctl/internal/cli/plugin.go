package cli

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const (
	// pluginName is the name by which kubectl finds the program.
	pluginName = "kubectl-informer"
	// pluginCalled is what a user has typed then.
	pluginCalled = "kubectl informer"
)

// describeAsPlugin makes help, usage and examples say what a user of kubectl types.
func describeAsPlugin(root *cobra.Command) {
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: pluginCalled}
	for _, cmd := range slices.Concat(root.Commands(), []*cobra.Command{root}) {
		cmd.Long, cmd.Example = asPlugin(cmd.Long), asPlugin(cmd.Example)
	}
}

// commandLine matches the program's name where a command follows.
var commandLine = regexp.MustCompile(`\binformctl [a-z]+`)

// asPlugin does the same for a text.
func asPlugin(text string) string {
	return commandLine.ReplaceAllStringFunc(text, func(line string) string {
		if line == "informctl cache" {
			return line // what a file is
		}
		return pluginCalled + strings.TrimPrefix(line, "informctl")
	})
}
