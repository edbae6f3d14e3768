package cmdutil

import "github.com/spf13/cobra"

// NoArguments refuses all arguments. It is the Args of a command.
func NoArguments(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.Flags().Lookup("db") != nil:
		return Usagef(cmd, "%s takes no arguments; --db names the file", cmd.Name())
	}
	return Usagef(cmd, "%s takes no arguments", cmd.Name())
}

// OneArgument refuses any number of arguments except one, which messages call name.
func OneArgument(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return Usagef(cmd, "%s takes one %s", cmd.Name(), name)
		}
		return nil
	}
}

// AtMostOneResource refuses more than one argument, and a resource without a name, which
// an unset variable of a script would pass: none means all of them.
func AtMostOneResource(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) > 1:
		return Usagef(cmd, "%s takes at most one RESOURCE", cmd.Name())
	case len(args) == 1 && args[0] == "":
		return Usagef(cmd, `"" is no resource`)
	}
	return nil
}

// Describe appends the exit codes to the help of a command.
func Describe(text string) string {
	return text + `

Exit codes: 0 done, 1 error, 3 the file is damaged, 64 wrong usage.`
}
