package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/store"
)

// infoOptions are the options of info.
type infoOptions struct {
	env      cmdutil.Env
	database databaseFlag
	table    tableFlags
}

func newInfoCommand(e cmdutil.Env) *cobra.Command {
	o := &infoOptions{env: e}
	cmd := &cobra.Command{
		Use:   "info",
		Short: "Print what a file holds and how recent it is",
		Long: cmdutil.Describe(`Print what a file holds and how recent it is: for each scope its resource,
selectors, objects, indexes with their number of values, resource version (RV),
the RV's age, bytes and codec; and its cluster, where there are several; and how many
durable consumers there are. The file is not changed. Of one that a live process holds
it is what is there after the last commit.`),
		Example: `  informctl info --db informers.db
  informctl info -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cmdutil.NoArguments(cmd, args); err != nil {
				return err
			}
			return o.table.check(cmd)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runInfo(cmd.Context(), o) },
	}
	o.database.addPath(o.env, cmd)
	o.table.add(cmd)
	return cmd
}

// fileInfo is the JSON form of info. Its field names are stable.
type fileInfo struct {
	Path   string      `json:"path"`
	Bytes  int64       `json:"bytes"` // of the file
	Scopes []scopeInfo `json:"scopes"`
	// Consumers are the durable consumers of the file.
	Consumers []durable.Status `json:"consumers,omitempty"`
}

type scopeInfo struct {
	ID              string      `json:"id"`
	Cluster         string      `json:"cluster"`
	Resource        string      `json:"resource"`
	APIVersion      string      `json:"apiVersion"`
	Kind            string      `json:"kind"`
	Namespace       string      `json:"namespace"`
	LabelSelector   string      `json:"labelSelector"`
	FieldSelector   string      `json:"fieldSelector"`
	Form            string      `json:"form"`
	Complete        bool        `json:"complete"`
	Objects         int         `json:"objects"`
	Bytes           int64       `json:"bytes"` // of the encoded objects
	Codec           string      `json:"codec"`
	Transform       string      `json:"transformVersion,omitempty"`
	ResourceVersion string      `json:"resourceVersion"`
	Reason          string      `json:"reason"`         // why resourceVersion is empty
	Time            *time.Time  `json:"time,omitempty"` // when it was set
	AgeSeconds      *int64      `json:"ageSeconds,omitempty"`
	Indexes         []indexInfo `json:"indexes"`
	Log             *logInfo    `json:"log,omitempty"` // what is kept of the changes
}

type logInfo struct {
	Entries int       `json:"entries"`
	Bytes   int64     `json:"bytes"`
	Begins  time.Time `json:"begins"` // of the oldest change that is kept
	Dropped uint64    `json:"dropped"`
}

type indexInfo struct {
	Name     string `json:"name"`
	Identity string `json:"identity"`
	Values   int    `json:"values"`
}

func runInfo(ctx context.Context, o *infoOptions) error {
	db, err := o.database.open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	file, err := os.Stat(db.path)
	if err != nil {
		return openError(db.path, err)
	}
	out := fileInfo{Path: db.path, Bytes: file.Size(), Scopes: []scopeInfo{}}
	gone := 0
	for _, info := range db.stored {
		if isGone(info) && o.table.format == "table" {
			gone++
			continue
		}
		out.Scopes = append(out.Scopes, describeScope(info, o.env.Now()))
	}
	fromTypes := 0
	for _, info := range db.stored {
		if info.Scope.Form == store.Typed {
			fromTypes += info.Objects
		}
	}
	o.env.NoteNewer(db.serverVersion(ctx), fromTypes)
	out.Consumers, err = db.consumers(ctx)
	printed := o.env.Output(func(w io.Writer) error {
		if len(out.Scopes) == 0 && o.table.format == "table" {
			o.env.Note("%s holds nothing", db.path)
		}
		if gone > 0 {
			o.env.Note("resources that the server no longer serves, of which the log is left: %d; informctl history --deleted and query --at read it", gone)
		}
		if n := len(out.Consumers); n > 0 && o.table.format == "table" {
			o.env.Note("durable consumers: %d; informctl consumers says what is left for them", n)
		}
		headers, rows := out.table()
		return o.table.print(w, out, headers, rows)
	})
	return errors.Join(printed, err)
}

func describeScope(info store.Info, now time.Time) scopeInfo {
	s := info.Scope
	out := scopeInfo{
		ID: info.ID, Cluster: s.Cluster, Resource: s.Resource,
		APIVersion: s.Kind.GroupVersion().String(), Kind: s.Kind.Kind,
		Namespace: s.Namespace, LabelSelector: s.LabelSelector, FieldSelector: s.FieldSelector,
		Form: s.Form.String(), Complete: info.Complete, Objects: info.Objects, Bytes: info.Bytes, Codec: info.Codec,
		Transform:       info.TransformVersion,
		ResourceVersion: info.Checkpoint.RV, Reason: info.Checkpoint.Reason, Indexes: []indexInfo{},
	}
	if set := info.Checkpoint.Time; !set.IsZero() {
		set = set.UTC().Truncate(time.Second)
		age := int64(now.Sub(set).Seconds())
		out.Time, out.AgeSeconds = &set, &age
	}
	if log := info.Log; log.Entries > 0 {
		out.Log = &logInfo{log.Entries, log.Bytes, log.Begins.UTC().Truncate(time.Second), log.Dropped}
	}
	for _, idx := range info.Indexes {
		out.Indexes = append(out.Indexes, indexInfo{idx.Name, idx.Identity, idx.Values})
	}
	return out
}

// table returns the scopes as rows. It has a column for clusters if they differ.
func (f fileInfo) table() (headers []string, rows [][]any) {
	headers = []string{"Resource", "Namespace", "Selectors", "Form", "Objects", "RV", "Age", "Bytes", "Codec", "Indexes", "State"}
	clusters := slices.ContainsFunc(f.Scopes, func(s scopeInfo) bool { return s.Cluster != f.Scopes[0].Cluster })
	if clusters {
		headers = slices.Insert(headers, 0, "Cluster")
	}
	for _, s := range f.Scopes {
		age := ""
		if s.AgeSeconds != nil {
			age = duration.HumanDuration(time.Duration(*s.AgeSeconds) * time.Second)
		}
		row := []any{
			s.Resource, cmdutil.OrDash(s.Namespace), cmdutil.OrDash(s.selectors()), s.Form, int64(s.Objects),
			cmdutil.OrDash(s.ResourceVersion), cmdutil.OrDash(age), s.Bytes, s.Codec, cmdutil.OrDash(s.indexes()), s.state(),
		}
		if clusters {
			row = slices.Insert(row, 0, any(cmdutil.OrDash(s.Cluster)))
		}
		rows = append(rows, row)
	}
	return headers, rows
}

func (s scopeInfo) selectors() string {
	var parts []string
	if s.LabelSelector != "" {
		parts = append(parts, "labels:"+s.LabelSelector)
	}
	if s.FieldSelector != "" {
		parts = append(parts, "fields:"+s.FieldSelector)
	}
	return strings.Join(parts, " ")
}

func (s scopeInfo) indexes() string {
	var parts []string
	for _, idx := range s.Indexes {
		parts = append(parts, fmt.Sprintf("%s(%d)", idx.Name, idx.Values))
	}
	return strings.Join(parts, ",")
}

// state describes how run would continue with the scope.
func (s scopeInfo) state() string {
	switch {
	case !s.Complete:
		return "first list not complete"
	case s.ResourceVersion == "":
		return "to be listed again: " + s.Reason
	}
	return "complete"
}
