// Package audit is the command that compares what a file holds with the server it is of.
package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/informctl/informctl/cmd/informctl/internal/cluster"
	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/audit"
	"github.com/informctl/informctl/store"
)

// options are the options of audit.
type options struct {
	env      cmdutil.Env
	database source.FileFlags
	kube     *genericclioptions.ConfigFlags
	resource string
}

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	o := &options{env: e, kube: genericclioptions.NewConfigFlags(true)}
	// A scope has its own namespace.
	o.kube.Timeout, o.kube.CacheDir, o.kube.Namespace = nil, nil, nil
	cmd := &cobra.Command{
		Use:   "audit [RESOURCE]",
		Short: "Compare what a file holds with the server it is of",
		Long: `Compare what a file holds with the server it is of.

A file can be whole and of a history that the cluster no longer has: etcd was restored,
and has grown past the file's resource version (RV). All objects are listed, and each
that differs is a line: what differs, its resource, its key.

  missing  the server has it, unchanged since the file's RV, and the file has not
  ghost    the file has it and the server has not
  uid      it has another UID
  version  it has an RV that the server did not have, or no longer had
  content  it has the same UID and RV, and other content
  rewound  the server is behind the file; of the whole resource

What has changed since the file's RV cannot be judged and is counted. An object that
the server does not have may have been deleted since: only where the file is as recent
as the server it is a ghost. The content of objects that went through a transform, were
stored from another version of their Go type, or of one that is not known here, is not
compared. A CustomResourceDefinition that was given a new default changes content at
an equal RV, too. A resource that the server refuses to list is left out, which is an
error when all else has been printed, and so is one that is to be listed again, if
nothing else differs.

informctl wipe drops what is wrong. A running informer audits itself, with more to go
by: Options.AuditInterval.

Exit codes: 0 nothing differs, 1 something does, 3 the file is damaged, 4 another error,
64 wrong usage.`,
		Example: `  informctl audit --db informers.db
  informctl audit pods --context production`,
		Args: cmdutil.AtMostOneResource,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.resource = args[0]
			}
			ctx, stop := cmdutil.Interruptible(cmd.Context())
			defer stop()
			differs, err := run(ctx, o)
			if ctx.Err() != nil {
				err = cmdutil.ErrInterrupted
			}
			return cmdutil.Compared(differs, err)
		},
	}
	o.database.Kube = o.kube
	o.database.Add(o.env, cmd)
	cmd.PreRunE = func(*cobra.Command, []string) error { return cmdutil.Trouble(o.database.Complete(o.env)) }
	o.kube.AddFlags(cmd.Flags())
	cmdutil.CompleteContext(cmd, o.kube)
	return cmd
}

func run(ctx context.Context, o *options) (differs bool, err error) {
	db, err := o.database.OpenWhole(ctx, o.env, true)
	if err != nil {
		return false, err
	}
	defer func() { _ = db.Close() }()
	infos, err := db.FindWhole(o.env, o.resource)
	if err != nil {
		return false, err
	}
	if len(infos) == 0 {
		o.env.Note("%s holds nothing", db.Path)
		return false, nil
	}
	if err := source.RefuseServed(o.kube, o.database.Path, "would be compared with itself"); err != nil {
		return false, err
	}
	config, err := cluster.Config(o.kube)
	if err != nil {
		return false, err
	}
	server, err := cluster.NewServer(config)
	if err != nil {
		return false, err
	}
	identity, err := informer.ClusterIdentity(ctx, config)
	if err != nil && cluster.Unreachable(err) {
		return false, fmt.Errorf("server %s cannot be reached: %w", config.Host, err)
	}
	if err != nil {
		return false, fmt.Errorf("server %s: %w", config.Host, err)
	}
	infos = source.OfServer(o.env, config.Host, identity, infos, func(info store.Info) store.Info { return info })
	for _, info := range infos {
		if is := info.Scope.Cluster; is != "" && is != identity {
			return false, fmt.Errorf("%s is of cluster %s; the server %s is cluster %s", info.Scope, is, config.Host, identity)
		}
	}
	var all summary
	var unread source.Unread
	var ended error // why the scopes after one are not compared
	err = o.env.Output(func(w io.Writer) error {
		for _, info := range infos {
			err := o.auditScope(ctx, w, db, server, info, &all)
			if err == nil {
				continue
			}
			err = db.Named(fmt.Errorf("%s: %w", info.Scope, err))
			if errors.As(err, new(apierrors.APIStatus)) {
				unread.Put(info.ID, err) // the server may answer for other resources
			} else if ended = unread.Add(info, err); ended != nil {
				return nil // what was found is printed, unless the output is what failed
			}
		}
		return nil
	})
	all.note(o.env)
	return all.findings > 0, cmp.Or(err, ended, o.env.Incomplete(unread.Lines()), all.nothing())
}

// auditScope compares one scope, prints what differs and adds it to the summary.
func (o *options) auditScope(ctx context.Context, w io.Writer, db *source.Database, srv *cluster.Server, info store.Info, all *summary) error {
	switch {
	case !info.Complete:
		all.leftOut++
		all.said.Add("left out, its first list is not complete; "+cmdutil.Completes, info.Scope.String())
		return nil
	case info.Checkpoint.RV == "":
		all.leftOut++
		all.said.Add("left out, it is to be listed again: "+info.Checkpoint.Reason, info.Scope.String())
		return nil
	case info.Scope.Cluster == "":
		all.said.Add("it names no cluster, so it is compared with whichever answers", info.Scope.String())
	}
	collection, c, why, err := auditSource(srv, info)
	if err != nil {
		return err
	}
	if why != "" {
		all.said.Add("content is not compared: "+why, info.Scope.String())
	}
	s, err := db.File.Open(info.Scope, store.Options{Codec: c})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	m := o.env.NewMeter("comparing", "objects", info.Objects)
	defer m.Stop()
	done := 0
	result, err := audit.Run(ctx, audit.Options{
		List: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return collection.List(ctx, collection.Selected(options))
		},
		Store: s, From: info.Checkpoint.RV, Content: why == "",
		Pause: func(ctx context.Context) error {
			done += audit.PageSize
			m.Set(done)
			return ctx.Err()
		},
		Found: func(f audit.Finding) error {
			all.findings++
			_, err := fmt.Fprintln(w, strings.TrimSpace(fmt.Sprintf("%s %s %s", f.Kind, info.Scope.Resource, f.Key)))
			return err
		},
	})
	if err == nil {
		all.compared = append(all.compared, compared{info, result})
	}
	return err
}

// auditSource returns a source that lists a scope's objects. If this program knows their
// type, the objects have the stored form and c encodes them. Otherwise why says why the
// content cannot be compared.
func auditSource(srv *cluster.Server, info store.Info) (collection *cluster.Collection, c codec.Codec, why string, err error) {
	scope := info.Scope
	if scope.Form == store.Metadata || scope.Form == store.Typed && !scheme.Scheme.Recognizes(scope.Kind) {
		scope.Form, why = store.Unstructured, "its type is not known here"
	}
	if collection, err = srv.Collection(scope); err != nil {
		return nil, nil, "", err
	}
	if why == "" {
		if c, err = codec.For(collection.Example); err != nil {
			return nil, nil, "", err
		}
		switch {
		case info.TransformVersion != "":
			why = "it went through transform " + info.TransformVersion
		case c.Fingerprint() != info.TypeFingerprint:
			why = "it was stored from another version of its type"
		}
	}
	return collection, c, why, nil
}
