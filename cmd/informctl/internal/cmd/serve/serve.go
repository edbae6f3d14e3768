// Package serve is the command that serves a file as a Kubernetes API, and the one that
// prints where it is served.
package serve

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/serving"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/relay"
	"github.com/informctl/informctl/store"
)

// options are the options of serve.
type options struct {
	env     cmdutil.Env
	file    source.FileFlags
	atText  string
	at      store.Place
	secrets bool
	port    int
	log     cmdutil.LogFlags
}

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	o := &options{env: e}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a file as a read-only Kubernetes API until interrupted",
		Long: cmdutil.Describe(`Serve a file as a read-only Kubernetes API until interrupted.

kubectl, k9s, client-go and scripts read the file as if it were the cluster: get, list and
watch, tables, selectors, describe, explain. No server is asked. Everything else is
refused. It listens at the loopback, with TLS and a token; both are in a kubeconfig beside
the file that only you can read, whose path is printed.

--at serves the state of all resources at a moment: a time, or a resource version, which
is one for all resources of a cluster. What the log of a resource does not reach is not
served, and said. Ages count from that moment. The log goes back an hour unless informctl
run keeps a longer --history.

A file that a process holds is served as it is now, or was at that moment; informctl run
--serve serves it while it changes.`),
		Example: `  informctl serve --db snapshot.db
  informctl serve --at 10:02
  export KUBECONFIG="$(informctl kubeconfig)"`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(cmd); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	o.file.Add(e, cmd)
	o.file.AddCluster(cmd)
	cmd.Flags().StringVar(&o.atText, "at", "", "The moment whose state is served: a time, as 10:02, yesterday 10:02 or 2026-01-02 15:04, a duration before now, as 30m, or a resource version.")
	cmd.Flags().BoolVar(&o.secrets, "secrets", false, "Serve Secrets, too, which the file has with a key only.")
	cmd.Flags().IntVar(&o.port, "port", 0, "The port of the loopback to listen at; by default that of the last time, or any.")
	o.log.Add(cmd)
	return cmd
}

func (o *options) complete(cmd *cobra.Command) (err error) {
	if o.port < 0 || o.port > 65535 {
		return cmdutil.Usagef(cmd, "--port %d is no port", o.port)
	}
	if err := cmdutil.CheckMoments(cmd, "at"); err != nil {
		return err
	}
	if o.at, err = cmdutil.ParsePlace(o.atText, o.env.Now()); err != nil {
		return cmdutil.Usagef(cmd, "--at %w", err)
	}
	if o.at.Exact() {
		return cmdutil.Usagef(cmd, "--at %s is a place in the log of one resource; give a time or a resource version", o.atText)
	}
	if err := o.env.IsOver(o.at.Time, o.atText); err != nil {
		return cmdutil.Usagef(cmd, "--at %w", err)
	}
	return o.log.Check(cmd)
}

func (o *options) run(ctx context.Context) error {
	ctx, stop := cmdutil.Interruptible(ctx)
	defer stop()
	logger := o.log.Logger(o.env.Streams.ErrOut)
	klog.SetLogger(logr.Discard()) // the handlers log what they answer
	db, err := o.file.OpenWhole(ctx, o.env, true)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	source.CollectOften()
	if err := source.OneCluster(db.Path, db.Scopes); err != nil {
		return err
	}
	held, err := o.collections(ctx, db)
	if err != nil {
		return err
	}
	documents := relay.OpenDocuments(ctx, db.File)
	documents.Of(ctx, held.all[0].Scope.Cluster)
	return serving.Serve(ctx, held.all, relay.Options{
		Secrets: o.secrets, Documents: documents, ServerVersion: db.ServerVersion(ctx), Now: held.now, Warning: held.warning, Logger: logger,
	}, serving.FilePath(o.file.Path), o.port, func(l *relay.Local) {
		logger.Info("Serving", "file", o.file.Path, "resources", len(held.all), "state", held.state)
		o.env.Note("kubectl --kubeconfig %s get pods -A", l.Kubeconfig)
	})
}

// held is what is served of a file.
type held struct {
	all     relay.Collections
	now     time.Time // from which ages count; zero is the present time
	state   string    // of when it is
	warning string
}

// collections opens the scopes of the file, at the moment that is wanted.
func (o *options) collections(ctx context.Context, db *source.Database) (held, error) {
	var h held
	version := db.ServerVersion(ctx)
	var last time.Time // no time to come, which is that of a clock that was ahead
	now := time.Now()
	var heard []time.Time // for each of h.all; zero is the served moment
	var absent, ahead []error
	var moved []string
	for _, info := range db.Scopes {
		if !info.Complete || source.IsGone(info) && o.at.IsZero() {
			continue
		}
		if info.Scope.IsSecret() && !o.secrets {
			continue
		}
		r, err := db.OpenScope(info, nil)
		if err == nil && info.Encrypted {
			_, err = r.Select(store.Query{Limit: 1}) // with a wrong key it is an error
			if err != nil && info.Scope.IsSecret() {
				return h, err
			}
		}
		if err != nil {
			o.env.Note("%s: not served: %s", info.Scope, cmdutil.OneLine(err))
			continue
		}
		c := relay.Collection{Scope: info.Scope, Reader: r, Note: serving.Note(info.Scope, info.TransformVersion, version)}
		if !o.at.IsZero() {
			at, notReached, err := source.MarkAt(r, info.Scope, o.at)
			if err != nil {
				absent = append(absent, err)
				continue
			}
			if notReached != nil {
				ahead = append(ahead, notReached)
			}
			if c.At = at; o.at.RV != "" && at.RV != o.at.RV {
				moved = append(moved, info.Scope.Resource+" of "+at.RV)
			}
			if at.Time.After(last) {
				last = at.Time
			}
		} else if set := info.Checkpoint.Time; set.After(last) && !set.After(now) {
			last = set
		}
		since, err := o.heard(ctx, r, info)
		if err != nil {
			return h, fmt.Errorf("%s: %w", info.Scope, err)
		}
		heard = append(heard, since)
		h.all = append(h.all, c)
	}
	if o.secrets && !slices.ContainsFunc(h.all, func(c relay.Collection) bool { return c.Scope.IsSecret() }) {
		o.env.Note("%s has no Secrets to serve", o.file.Path)
	}
	switch {
	case len(ahead) > 0 && len(ahead) == len(h.all):
		return h, ahead[0]
	case len(h.all) > 0:
	case len(absent) == 1:
		return h, absent[0]
	case len(absent) > 1:
		return h, fmt.Errorf("%w; nor of %d other resources", absent[0], len(absent)-1)
	default:
		return h, fmt.Errorf("%s has no objects to serve", o.file.Path)
	}
	switch {
	case len(absent) == 1:
		o.env.Note("not served: %s", cmdutil.OneLine(absent[0]))
	case len(absent) > 1:
		o.env.Note("not served: %d resources, such as %s", len(absent), cmdutil.OneLine(absent[0]))
	}
	if len(moved) > 0 {
		o.env.Note("not of %s, but the newest states before it: %s", o.at.RV, cmdutil.Some(moved))
	}
	if last.IsZero() {
		last = now
	}
	h.state = last.UTC().Format(time.RFC3339)
	switch {
	case o.at.RV != "":
		h.now, h.state = last, "resource version "+o.at.RV+", "+h.state
	case !o.at.IsZero():
		h.now = o.at.Time
		h.state = o.at.Time.UTC().Format(time.RFC3339)
	}
	h.warning = "informctl: the state of " + h.state
	moment, word := last, "since"
	if !o.at.IsZero() {
		moment, word = o.at.Time, "then"
	}
	for i, since := range heard {
		if !since.IsZero() && moment.Sub(since).Abs() > serving.StaleAfter {
			note := fmt.Sprintf("as of %s, the server was not heard %s, or an object could not be stored", since.UTC().Format(time.RFC3339), word)
			h.all[i].Note = serving.WithNote(note, h.all[i].Note)
		}
	}
	return h, nil
}

// heard returns when the server was last heard before the moment that is served, zero if
// it was heard then: scopes of a file may have been followed at different times.
func (o *options) heard(ctx context.Context, r store.Reader, info store.Info) (time.Time, error) {
	switch {
	case o.at.RV != "":
		return time.Time{}, nil // the log has the state of a resource version
	case !o.at.IsZero():
		return source.Unfollowed(ctx, r, info, o.at.Time)
	case info.Checkpoint.RV != "":
		return info.Checkpoint.Time, nil
	}
	state, err := r.History() // the checkpoint has the time when it was made invalid
	return state.Readable.Time, err
}
