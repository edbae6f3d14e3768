package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
)

func newSnapshotCommand(e env) *cobra.Command {
	var file databaseFlag
	cmd := &cobra.Command{
		Use:   "snapshot OUT",
		Short: "Copy a file that no process holds",
		Long: describe(`Copy a file that no process holds, after checking all of it.

OUT appears when the copy is whole and on the disk; a file of that name is not
replaced.`),
		Example: `  informctl snapshot backup.db --db informers.db
  informctl snapshot /tmp/informers-$(date +%s%N).db --db informers.db`,
		Args: oneArgument("OUT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return runSnapshot(ctx, e, file, args[0])
		},
	}
	file.add(cmd.Flags())
	return cmd
}

// oneArgument refuses any other number of them.
func oneArgument(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return usagef(cmd, "%s takes one %s", cmd.Name(), name)
		}
		return nil
	}
}

func runSnapshot(ctx context.Context, e env, file databaseFlag, out string) error {
	db, err := file.open(true) // its lock keeps writers out until the end
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := db.whole(ctx, e); err != nil {
		return err
	}
	return newFile(out, func(temporary string) error {
		f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		err = guard(db.Path(), func() error { return copyPages(ctx, e, db.Path(), f) })
		if err == nil {
			err = f.Sync()
		}
		closeErr := f.Close()
		if errors.Is(err, errInterrupted) {
			return errInterrupted
		}
		if err = errors.Join(err, closeErr); err != nil {
			return fmt.Errorf("write %s: %w", out, err)
		}
		return nil
	})
}

// copyPages writes the file as a read transaction sees it.
func copyPages(ctx context.Context, e env, path string, to io.Writer) error {
	src, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	return src.View(func(tx *bbolt.Tx) error {
		m := e.newMeter("copying", bytesUnit, int(tx.Size()))
		defer m.stop()
		_, err := tx.WriteTo(&checkedWriter{Writer: to, ctx: ctx, meter: m})
		return err
	})
}

// guard turns a panic or a fault of bbolt on damaged pages into an error.
func guard(path string, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &store.CorruptionError{Path: path, Where: "pages", Err: fmt.Errorf("bbolt: %v", r)}
		}
	}()
	return fn()
}
