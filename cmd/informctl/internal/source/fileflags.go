package source

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/codec"
)

// FileFlags is --db and, for commands that open the file, the flags for its keys.
type FileFlags struct {
	Path      string
	Cluster   string                         // the value of --of-cluster; "" is all
	Kube      *genericclioptions.ConfigFlags // name the context; nil: AddPath adds them
	byContext bool                           // Path is that of the context
	isServed  bool                           // the context is that of a served file
	KeyFlags
}

// Add adds all flags. Complete is called before the command runs.
func (f *FileFlags) Add(e cmdutil.Env, cmd *cobra.Command) {
	f.AddPath(e, cmd)
	f.KeyFlags.Add(cmd.Flags())
}

// AddPath does what Add does, without the flags for keys.
func (f *FileFlags) AddPath(e cmdutil.Env, cmd *cobra.Command) {
	f.Path = os.Getenv("INFORMCTL_DB")
	cmd.Flags().StringVar(&f.Path, "db", f.Path, "The file that holds the objects; else $INFORMCTL_DB, the file of --context, informers.db if that is there, the file of the context.")
	cmdutil.RefuseEmpty(cmd.Flags(), "db", "it names no file")
	if f.Kube == nil {
		f.addContext(cmd)
	}
	cmd.PreRunE = func(*cobra.Command, []string) error { return f.Complete(e) }
}

// KeyFlags are --key-file and --key-command. Encrypted data needs one of them.
type KeyFlags struct {
	Keys       codec.KeyProvider // nil: none was given
	KeysOfFile bool              // Keys are those of a file
}

// Add adds the flags.
func (f *KeyFlags) Add(flags *pflag.FlagSet) {
	if path := os.Getenv("INFORMCTL_KEY_FILE"); path != "" {
		f.Keys, f.KeysOfFile = codec.KeyFile(path), true
	}
	flags.Func("key-file", "The file of the keys that encrypt Secrets, 64 hexadecimal digits a line, the present one first; $INFORMCTL_KEY_FILE.",
		func(path string) error {
			if path == "" {
				return errors.New("it names no file")
			}
			f.Keys, f.KeysOfFile = codec.KeyFile(path), true
			return nil
		})
	flags.Func("key-command", "A command that prints what --key-file has; words end at spaces, no shell is asked. The last of both flags counts.",
		func(command string) error {
			words := strings.Fields(command)
			if len(words) == 0 {
				return errors.New("no command")
			}
			f.Keys, f.KeysOfFile = codec.KeyCommand(words[0], words[1:]...), false
			return nil
		})
}
