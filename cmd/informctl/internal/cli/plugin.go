package cli

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const (
	// pluginName is the name under which kubectl finds the program.
	pluginName = "kubectl-informer"
	// pluginCalled is what the user types to call the plugin.
	pluginCalled = "kubectl informer"
)

// describeAsPlugin rewrites help, usage and examples to what a user of kubectl types.
func describeAsPlugin(root *cobra.Command) {
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: pluginCalled}
	for _, cmd := range slices.Concat(root.Commands(), []*cobra.Command{root}) {
		cmd.Long, cmd.Example = asPlugin(cmd.Long), asPlugin(cmd.Example)
	}
}

// commandLine matches the program's name before a command.
var commandLine = regexp.MustCompile(`\binformctl [a-z]+`)

// asPlugin rewrites the commands in a text to what a user of kubectl types.
func asPlugin(text string) string {
	return commandLine.ReplaceAllStringFunc(text, func(line string) string {
		if line == "informctl cache" {
			return line // not a command: the term for a file
		}
		return pluginCalled + strings.TrimPrefix(line, "informctl")
	})
}
