// Package snapshot is the command that copies a file, checked.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/internal/space"
)

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	var file source.FileFlags
	cmd := &cobra.Command{
		Use:   "snapshot OUT",
		Short: "Copy a file, checked",
		Long: cmdutil.Describe(`Copy a file, checked.

OUT appears when the copy is whole and on the disk; a file of that name is not
replaced. A file that no process holds is checked before. One that a live process holds
is copied by it as of its last commit, while it goes on, and the copy is checked. A
tenth of a volume, 256 MiB at most, stays free for those who write to it: a copy that
does not fit is not begun, and one that gets in their way is not finished.`),
		Example: `  informctl snapshot backup.db --db informers.db
  informctl snapshot /tmp/informers-$(date +%s%N).db --db informers.db`,
		Args: cmdutil.OneArgument("OUT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := cmdutil.Interruptible(cmd.Context())
			defer stop()
			return run(ctx, e, file, args[0])
		},
	}
	file.Add(e, cmd)
	return cmd
}

func run(ctx context.Context, e cmdutil.Env, file source.FileFlags, out string) error {
	db, err := file.Open(ctx, true) // its lock keeps writers out until the end
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if process := db.Process(); process != nil {
		return source.NewFile(out, func(temporary string) error {
			if err := process.CopyTo(e, temporary); err != nil {
				return err
			}
			return file.CheckCopy(ctx, e, temporary)
		})
	}
	return source.NewFile(out, func(temporary string) error {
		if err := db.Whole(ctx, e); err != nil {
			return err
		}
		f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		w := &space.Writer{Writer: f, Path: temporary}
		err = source.CopyPages(ctx, e, db.Path, w)
		if err == nil {
			err = f.Sync()
		}
		closeErr := f.Close()
		if ctx.Err() != nil { // bbolt does not wrap a writer's error
			return cmdutil.ErrInterrupted
		}
		if w.Short != nil {
			err = w.Short
		}
		if err = errors.Join(err, closeErr); err != nil {
			return fmt.Errorf("write %s: %w", out, err)
		}
		return nil
	})
}
