package cmdutil

import (
	"errors"

	"github.com/spf13/pflag"
)

// RefuseEmpty makes a flag of one text refuse "", which an unset variable of a script
// passes: it would mean what the command does without the flag. lacks says what is wrong.
func RefuseEmpty(flags *pflag.FlagSet, name, lacks string) {
	f := flags.Lookup(name)
	f.Value = notEmpty{f.Value, lacks}
}

type notEmpty struct {
	pflag.Value
	lacks string
}

// Set implements pflag.Value.
func (n notEmpty) Set(text string) error {
	if text == "" {
		return errors.New(n.lacks)
	}
	return n.Value.Set(text)
}
