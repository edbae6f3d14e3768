// Package rekey is the command that encrypts a file's data keys with another key.
package rekey

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
)

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	var file source.FileFlags
	cmd := &cobra.Command{
		Use:   "rekey",
		Short: "Encrypt a file's data keys with another key",
		Long: cmdutil.Describe(`Encrypt a file's data keys with another key, and begin a new data key.

To replace a key, put the new one in front of the old one, run rekey, then remove
the old one: it is not needed any more. What is stored stays under the data keys
that it was encrypted with, what is written later is under the new one. Who has
the old key can read what was stored before, in a copy of the file and in the file
itself until compact has left the old data keys behind: do so if others know the
key, and delete the copies. No other process may hold the file.`),
		Example: `  informctl rekey --key-file keys --db informers.db
  informctl rekey --key-file keys && informctl compact --key-file keys
  informctl rekey --key-command "cat keys"`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cmdutil.NoArguments(cmd, args); err != nil {
				return err
			}
			if file.Keys == nil {
				return cmdutil.Usagef(cmd, "rekey needs --key-file or --key-command")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), e, file) },
	}
	file.Add(e, cmd)
	return cmd
}

func run(ctx context.Context, e cmdutil.Env, file source.FileFlags) error {
	// Opening the file for writing would create a missing file.
	reader, err := source.OpenDatabase(file.Path, file.Keys, true)
	if err != nil {
		return err
	}
	encrypted := 0
	for _, info := range reader.Scopes {
		if info.Encrypted {
			encrypted++
		}
	}
	err = reader.Writable(ctx, e)
	if err == nil && encrypted == 0 {
		_, err = file.Keys.Keys(ctx) // nothing else would ask for them
	}
	if err := errors.Join(err, reader.Close()); err != nil {
		return err
	}
	db, err := source.OpenToWrite(file.Path, file.Keys)
	if err != nil {
		return source.OpenError(file.Path, err)
	}
	err = db.Rekey(ctx)
	if closeErr := db.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("rekey %s: %w", file.Path, err)
	}
	if encrypted == 0 {
		e.Note("nothing in %s is encrypted; Secrets are, when informctl run or import stores them with a key", file.Path)
		return nil
	}
	return e.Output(func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s: %d of %d scopes encrypted, the first key is the one that opens them\n",
			file.Path, encrypted, len(reader.Scopes))
		return err
	})
}
