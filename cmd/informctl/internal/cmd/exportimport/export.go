// Package exportimport has the commands that print a file as lines of JSON, and make a
// file of these. They share the format.
package exportimport

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/selection"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/internal/space"
	"github.com/informctl/informctl/store"
)

// exportOptions are the options of export.
type exportOptions struct {
	env         cmdutil.Env
	database    source.FileFlags
	showSecrets bool
}

// NewExportCommand returns export.
func NewExportCommand(e cmdutil.Env) *cobra.Command {
	o := &exportOptions{env: e}
	cmd := &cobra.Command{
		Use:   "export [RESOURCE]",
		Short: "Print a file as lines of JSON, which import takes back",
		Long: cmdutil.Describe(`Print a file as lines of JSON, which import takes back.

Each scope is a line that describes it, with its resource version, and then one line
for each object, in the order of keys. A file that a live process holds is copied first,
as snapshot does it, and the copy is removed afterwards: so all is of one moment. An
output that is a file leaves as much space as a snapshot does.`),
		Example: `  informctl export --db informers.db > informers.jsonl
  informctl export pods | grep node-1`,
		Args: cmdutil.AtMostOneResource,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := cmdutil.Interruptible(cmd.Context())
			defer stop()
			return runExport(ctx, o, args)
		},
	}
	o.database.Add(o.env, cmd)
	o.database.AddCluster(cmd)
	selection.AddSecretsFlag(cmd, &o.showSecrets)
	return cmd
}

// exportFormat is the version of the export format. Its fields are stable.
const exportFormat = 1

// exportHeader is the line before the objects of a scope.
type exportHeader struct {
	Export   int  `json:"informctlExport"`
	Redacted bool `json:"redacted,omitempty"` // the values of Secrets were left out
	// Following and Preceding are the numbers of scopes after and before this one.
	Following int              `json:"following"`
	Scope     source.ScopeInfo `json:"scope"`
	Preceding int              `json:"preceding,omitempty"`
	// TypeFingerprint is that of what has encoded the objects. Fields that it does not
	// have are not in the lines.
	TypeFingerprint string `json:"typeFingerprint,omitempty"`
}

func runExport(ctx context.Context, o *exportOptions, args []string) error {
	db, err := o.database.OpenWhole(ctx, o.env, o.showSecrets)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	infos, err := db.FindWhole(o.env, append(args, "")[0])
	if err != nil {
		return err
	}
	opened, err := db.Open(infos, source.WholeObjects)
	if err == nil && len(opened.Unread.Errs) > 0 {
		err = opened.Unread.Errs[0].Err // a part is no export
	}
	if err != nil {
		return db.Named(err)
	}
	views, total := opened.Views, 0
	for _, scope := range opened.Left {
		o.env.Note("%s: left out, its first list is not complete; %s", scope, cmdutil.Completes)
	}
	for _, v := range views {
		total += v.Info.Objects
	}
	m := o.env.NewMeter("exporting", "objects", total)
	defer m.Stop()
	done := 0
	fromTypes := 0
	for _, v := range views {
		if v.Info.Scope.Form == store.Typed {
			fromTypes += v.Info.Objects
		}
	}
	o.env.NoteNewer(db.ServerVersion(ctx), fromTypes)
	if out, ok := o.env.Streams.Out.(*os.File); ok && isRegular(out) {
		o.env.Streams.Out = &space.Writer{Writer: out, Path: out.Name()}
	}
	return db.Named(o.env.Output(func(w io.Writer) error {
		for i, v := range views {
			header := exportHeader{
				Export: exportFormat, Redacted: v.Info.Scope.IsSecret() && !o.showSecrets || isStripped(v.Info.TransformVersion),
				Following: len(views) - i - 1, Preceding: i, Scope: source.DescribeScope(v.Info, o.env.Now()),
				TypeFingerprint: v.Info.TypeFingerprint,
			}
			if err := json.NewEncoder(w).Encode(header); err != nil {
				return err
			}
			err := eachLine(ctx, v, func(lines [][]byte) error {
				for _, line := range lines {
					if _, err := w.Write(append(line, '\n')); err != nil {
						return err
					}
				}
				done += len(lines)
				m.Set(done)
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}))
}

func isRegular(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular()
}

// eachLine calls fn with the objects as JSON, in chunks in the order of keys.
func eachLine(ctx context.Context, v *source.View, fn func(lines [][]byte) error) error {
	keys, err := v.Keys(store.Query{})
	if err != nil {
		return err
	}
	items := make([]source.Item, len(keys))
	for i, key := range keys {
		items[i] = source.NewItem(v, key)
	}
	for part, err := range source.InParts(items, source.Record) {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return cmdutil.ErrInterrupted
		}
		lines := make([][]byte, len(part.Items))
		err := parallel.Do(len(part.Items), func(i int) (err error) {
			lines[i], err = lineOf(part.Items[i], part.Objects[i])
			return err
		})
		if err != nil {
			return err
		}
		if err := fn(lines); err != nil {
			return err
		}
	}
	return nil
}

func lineOf(i source.Item, e store.Entry) ([]byte, error) {
	obj, err := i.View.Decode(e)
	if err != nil {
		return nil, err
	}
	line, err := json.Marshal(obj)
	if err != nil {
		return nil, i.Wrap(err)
	}
	return bytes.TrimSuffix(line, []byte("\n")), nil
}
