package cli

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/informctl/informctl/codec"
)

// keyFlags are --key-file and --key-command. Encrypted data needs one of them.
type keyFlags struct{ keys codec.KeyProvider } // nil: none was given

func (f *keyFlags) add(flags *pflag.FlagSet) {
	if path := os.Getenv("INFORMCTL_KEY_FILE"); path != "" {
		f.keys = codec.KeyFile(path)
	}
	flags.Func("key-file", "The file of the keys that encrypt Secrets, 64 hexadecimal digits a line, the present one first; $INFORMCTL_KEY_FILE.",
		func(path string) error {
			f.keys = codec.KeyFile(path)
			return nil
		})
	flags.Func("key-command", "A command that prints what --key-file has; words end at spaces, no shell is asked. The last of both flags counts.",
		func(command string) error {
			words := strings.Fields(command)
			if len(words) == 0 {
				return errors.New("no command")
			}
			f.keys = codec.KeyCommand(words[0], words[1:]...)
			return nil
		})
}
