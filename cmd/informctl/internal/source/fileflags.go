package source

import (
	"errors"
	"fmt"
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
	cmd.Flags().Var(&named{&f.Path, "file"}, "db", "The file that holds the objects; else $INFORMCTL_DB, the file of --context, informers.db if that is there, the file of the context.")
	if f.Kube == nil {
		f.addContext(cmd)
	}
	cmd.PreRunE = func(*cobra.Command, []string) error { return f.Complete(e) }
}

// named is the value of a flag that names something. It refuses "", which an unset
// variable of a script would pass.
type named struct {
	name *string
	what string
}

func (n *named) String() string {
	if n.name == nil {
		return "" // pflag asks the zero value
	}
	return *n.name
}

func (n *named) Type() string { return "string" }

// Set implements pflag.Value.
func (n *named) Set(name string) error {
	if name == "" {
		return fmt.Errorf("it names no %s", n.what)
	}
	*n.name = name
	return nil
}

// KeyFlags are --key-file and --key-command. Encrypted data needs one of them.
type KeyFlags struct{ Keys codec.KeyProvider } // nil: none was given

// Add adds the flags.
func (f *KeyFlags) Add(flags *pflag.FlagSet) {
	if path := os.Getenv("INFORMCTL_KEY_FILE"); path != "" {
		f.Keys = codec.KeyFile(path)
	}
	flags.Func("key-file", "The file of the keys that encrypt Secrets, 64 hexadecimal digits a line, the present one first; $INFORMCTL_KEY_FILE.",
		func(path string) error {
			f.Keys = codec.KeyFile(path)
			return nil
		})
	flags.Func("key-command", "A command that prints what --key-file has; words end at spaces, no shell is asked. The last of both flags counts.",
		func(command string) error {
			words := strings.Fields(command)
			if len(words) == 0 {
				return errors.New("no command")
			}
			f.Keys = codec.KeyCommand(words[0], words[1:]...)
			return nil
		})
}
