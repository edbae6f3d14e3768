// Package compact is the command that gives the space that a file does not use back to
// the disk.
package compact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	bbolt "go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/health"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/internal/space"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	var file source.FileFlags
	cmd := &cobra.Command{
		Use:   "compact",
		Short: "Give the space that a file does not use back to the disk",
		Long: cmdutil.Describe(`Give the space that a file does not use back to the disk.

The file is written anew beside the old one, as FILE.compact-XXXX, checked, and put in
its place. Until then the old one stays as it is, whatever happens. What an earlier
compact left behind when it was killed is removed. No other process may hold the file.
What the file takes on the disk, before and after, is printed; it may be longer than
that.`),
		Example: `  informctl compact --db informers.db
  informctl compact --db informers.db && informctl info --db informers.db`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := cmdutil.Interruptible(cmd.Context())
			defer stop()
			return run(ctx, e, file)
		},
	}
	file.Add(e, cmd)
	return cmd
}

// compactTx is the number of bytes per transaction. They are held in memory.
const compactTx = 8 << 20

// compactSlack is how many bytes longer than its content the copy may be; bbolt's default
// is 16 MiB.
const compactSlack = 2 << 20

// compactSuffix is the part of a copy's name between the file's name and the random part.
const compactSuffix = ".compact-"

func run(ctx context.Context, e cmdutil.Env, file source.FileFlags) error {
	path := file.Path
	scopes, err := source.Checked(ctx, e, path, file.Keys)
	if err != nil {
		return err
	}
	release, err := bolt.Lock(path, time.Second)
	if err != nil {
		return source.OpenError(path, err)
	}
	defer release()
	src, f, err := lockDatabase(path)
	if err != nil {
		return source.OpenError(path, err)
	}
	// Close releases the lock; processes that wait for it then open the new file. After
	// an interrupt the copy may still be running, so the file stays open until the
	// process ends.
	defer func() {
		if ctx.Err() == nil {
			_ = src.Close()
		}
	}()
	if err := removeLeftovers(path); err != nil {
		return err
	}
	before, err := f.Stat()
	if err != nil {
		return err
	}
	name, err := compactCopy(ctx, e, src, path, int(before.Size()))
	defer func() { _ = os.Remove(name) }() // already gone after success
	if err != nil {
		return err
	}
	copied, err := source.Checked(ctx, e, name, file.Keys)
	if errors.Is(err, cmdutil.ErrInterrupted) {
		return cmdutil.ErrInterrupted
	}
	if err != nil {
		return fmt.Errorf("the copy is not used: %w", err)
	}
	if !reflect.DeepEqual(copied, scopes) {
		return errors.New("the file has changed while it was copied; the copy is not used")
	}
	after, err := os.Stat(name)
	if err != nil {
		return err
	}
	mode := before.Mode().Perm() &^ 0o007 // as a start
	if !giveGroup(name, before) {
		mode &^= 0o070
	}
	if err := os.Chmod(name, mode); err != nil {
		return err
	}
	if err := os.Rename(name, path); err != nil {
		return err
	}
	if err := source.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("%s is compact, and may be as before after a power cut: %w", path, err)
	}
	return e.Output(func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s: %s on the disk before, %s after\n", path, health.Size(allocated(before)), health.Size(allocated(after)))
		return err
	})
}

// giveGroup gives a copy the group of the file, and reports whether it has it: a user
// can give a file only to groups that he is in.
func giveGroup(name string, file os.FileInfo) bool {
	stat, ok := file.Sys().(*syscall.Stat_t)
	return ok && os.Lchown(name, -1, int(stat.Gid)) == nil
}

// allocated returns the bytes that a file takes on the disk. bbolt makes a file longer by
// megabytes at a time, which take nothing until they are written.
func allocated(info os.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(stat.Blocks) * 512 //nolint:unconvert // an int64 on Linux and macOS only
	}
	return info.Size()
}

// compactCopy copies src into a new file next to path and returns its name.
func compactCopy(ctx context.Context, e cmdutil.Env, src *bbolt.DB, path string, total int) (name string, err error) {
	free := src.Stats()
	need := int64(total) - int64(free.FreePageN+free.PendingPageN)*int64(src.Info().PageSize)
	if err := space.Check(filepath.Dir(path), need); err != nil {
		return "", err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+compactSuffix+"*")
	if err != nil {
		return "", source.InDirectory(path, err)
	}
	name = temporary.Name()
	if err := temporary.Close(); err != nil {
		return name, err
	}
	return name, compactUntil(ctx, e, src, name, total)
}

// lockDatabase opens a file and takes its lock, in the same way as a writer.
func lockDatabase(path string) (db *bbolt.DB, f *os.File, err error) {
	err = source.Guard(path, func() (err error) {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout: time.Second,
			OpenFile: func(name string, flag int, mode os.FileMode) (_ *os.File, err error) {
				f, err = os.OpenFile(name, flag&^os.O_CREATE|unix.O_NOFOLLOW, mode)
				return f, err
			},
		})
		return err
	})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		err = store.ErrLocked
	}
	if err != nil {
		return nil, nil, err
	}
	// Another compact may have replaced the file before this process got the lock.
	mine, mineErr := f.Stat()
	named, namedErr := os.Lstat(path)
	if err := errors.Join(mineErr, namedErr); err != nil || !os.SameFile(mine, named) {
		return nil, nil, errors.Join(store.ErrLocked, err, db.Close())
	}
	if stat, ok := mine.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		err := fmt.Errorf("%s belongs to user %d, and this process is user %d: what is compact would be another user's; run as its owner",
			path, stat.Uid, os.Geteuid())
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, f, nil
}

// removeLeftovers removes copies that were not finished, whose names end in the number of
// os.CreateTemp. The caller must hold the lock: copies are made only under it.
func removeLeftovers(path string) error {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		number, ours := strings.CutPrefix(entry.Name(), filepath.Base(path)+compactSuffix)
		if ours && number != "" && strings.Trim(number, "0123456789") == "" && entry.Type().IsRegular() {
			if err := os.Remove(filepath.Join(filepath.Dir(path), entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// compactUntil returns when the copy is done or the context ends. bbolt's copy cannot be
// stopped: after ctx has ended it continues, into a file without a name, until the
// process ends.
func compactUntil(ctx context.Context, e cmdutil.Env, src *bbolt.DB, to string, total int) error {
	// Commits are not synced: the copy is not used before it is complete. It is opened
	// before ctx is checked: otherwise an interrupt could remove the file first, and
	// bbolt would create it again.
	dst, err := bbolt.Open(to, 0o600, &bbolt.Options{Timeout: time.Second, NoSync: true, PageSize: src.Info().PageSize})
	if err != nil {
		return err
	}
	dst.AllocSize = compactSlack
	done := make(chan error, 1)
	go func() { done <- source.Guard(src.Path(), func() error { return compactInto(src, dst) }) }()
	m := e.NewMeter("compacting", cmdutil.BytesUnit, total)
	defer m.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return cmdutil.ErrInterrupted
		case <-tick.C:
			if info, err := os.Stat(to); err == nil {
				m.Set(int(info.Size()))
			}
		}
	}
}

func compactInto(src, dst *bbolt.DB) error {
	err := bbolt.Compact(dst, src, compactTx)
	if err == nil {
		err = dst.Sync()
	}
	if err = errors.Join(err, dst.Close()); err != nil {
		return fmt.Errorf("write the copy of %s: %w", src.Path(), err)
	}
	return nil
}
