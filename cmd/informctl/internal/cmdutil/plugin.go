package cmdutil

import (
	"regexp"
	"strings"
)

const (
	// PluginName is the name under which kubectl finds the program.
	PluginName = "kubectl-informer"
	// PluginCalled is what the user types to call the plugin.
	PluginCalled = "kubectl informer"
)

// commandLine matches the program's name before a command.
var commandLine = regexp.MustCompile(`\binformctl [a-z]+`)

// AsPlugin rewrites the commands in a text to what a user of kubectl types.
func AsPlugin(text string) string {
	return commandLine.ReplaceAllStringFunc(text, func(line string) string {
		if line == "informctl cache" {
			return line // not a command: the term for a file
		}
		return PluginCalled + strings.TrimPrefix(line, "informctl")
	})
}
