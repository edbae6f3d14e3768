// Package verify is the command that checks every page, record, index and log of a file.
package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
)

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	var file source.FileFlags
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check every page, record, index and log of a file",
		Long: cmdutil.Describe(`Check every page, record, index and log of a file, and that every object decodes.

One line for each scope says what it has or what is wrong with it. What is encrypted
is read with its key only, and an object in protobuf with its Go type: client-go's are
known. That it adds up is seen without. A key that is given and does not open it is an
error, after all else is checked. The file is not changed;
informctl run sets a damaged one aside and lists again. It does not if only a log is
damaged, or what a consumer remembers: then the objects are whole, and history is not. Of a file that a live process
holds a copy is checked, as snapshot makes it, which is removed afterwards.`),
		Example: `  informctl verify --db informers.db
  informctl verify --db informers.db && echo whole`,
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

func run(ctx context.Context, e cmdutil.Env, file source.FileFlags) error {
	db, err := file.OpenWhole(ctx, e, true)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if len(db.Scopes) == 0 {
		e.Note("%s holds nothing", db.Path)
	}
	var damage *store.CorruptionError
	damaged, where := 0, cmdutil.BesideObjects
	var parts []string
	var unread []error     // of scopes that the key that was given does not open
	var lines bytes.Buffer // all is checked, whether or not somebody reads them
	damagedLine := func(name string, damage *store.CorruptionError) {
		if !cmdutil.IsBesideObjects(damage) {
			where = "contents"
		}
		_, _ = fmt.Fprintf(&lines, "%s: damaged: %v\n", name, damage.Err)
	}
	for _, part := range []struct {
		name string
		err  error
	}{{"pages", source.VerifyPages(ctx, db)}, {"ledgers", source.VerifyLedgers(ctx, db)}} {
		switch {
		case errors.As(part.err, &damage):
			parts = append(parts, part.name)
			damagedLine(part.name, damage)
		case part.err != nil:
			return db.Named(part.err)
		}
	}
	err = db.Verify(ctx, e, func(info store.Info, err error) error {
		text := fmt.Sprintf("%s: whole: %d objects, %d indexes", info.Scope, info.Objects, len(info.Indexes))
		switch {
		case errors.Is(err, store.ErrNoKey) && file.Keys != nil:
			unread = append(unread, err)
			text = fmt.Sprintf("%s: adds up: %d objects, encrypted, not read with this key", info.Scope, info.Objects)
		case errors.Is(err, store.ErrNoKey):
			text = fmt.Sprintf("%s: adds up: %d objects, encrypted, not read without the key", info.Scope, info.Objects)
		case errors.Is(err, codec.ErrNoType):
			text = fmt.Sprintf("%s: adds up: %d objects, of a Go type that this program does not have", info.Scope, info.Objects)
		case errors.As(err, &damage):
			damaged++
			damagedLine(info.Scope.String(), damage)
			return nil
		case err != nil:
			return err
		case !info.Complete:
			text = fmt.Sprintf("%s: whole: first list not complete", info.Scope)
		}
		_, _ = fmt.Fprintln(&lines, text)
		return nil
	})
	if err != nil {
		return db.Named(err)
	}
	err = e.Output(func(w io.Writer) error {
		_, err := lines.WriteTo(w)
		return err
	})
	if damaged > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d scopes", damaged, len(db.Scopes)))
	}
	found := e.Incomplete(unread)
	if len(parts) > 0 {
		found = db.Named(&store.CorruptionError{Path: db.Path, Where: where, Err: errors.New(strings.Join(parts, ", "))})
	}
	return cmdutil.Found(found, err)
}
