// Package status is the command that says how the process is that keeps a file.
package status

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/health"
	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/informer"
)

// options are the options of status.
type options struct {
	env      cmdutil.Env
	database source.FileFlags
	table    printer.TableFlags
}

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	o := &options{env: e}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how the process is that keeps a file",
		Long: cmdutil.Describe(`Say how the process is that keeps a file: for each scope whether it is synced
and caught up, or disconnected from the server, its objects and resource version
(RV), whether it resumed the watch of the last process or listed, how long ago the
RV was set (LAG) and the last event, bookmark and commit were, what waits to be
written (PENDING, bytes) and for handlers, and what is wrong. The process is asked
through its socket, FILE.sock.

The durable consumers of the file follow, as informctl consumers prints them. Without a
process they are what was last written.

It ends with 0 only where a process answers, every scope is caught up and nothing is
wrong: a scope that is held in memory though there is a file is.`),
		Example: `  informctl status --db informers.db
  informctl status -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cmdutil.NoArguments(cmd, args); err != nil {
				return err
			}
			return o.table.Check(cmd)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	o.database.AddPath(o.env, cmd)
	o.table.Add(cmd)
	return cmd
}

func run(ctx context.Context, o *options) error {
	statuses, err := source.AskStatus(ctx, o.database.Path)
	if errors.Is(err, source.ErrNobody) {
		err = source.Unanswered(o.database.Path, err)
	}
	if err != nil && !errors.Is(err, source.ErrNobody) {
		return err
	}
	consumers := o.consumers(ctx, err == nil)
	printed := o.env.Output(func(w io.Writer) error {
		if err == nil {
			if err := o.table.Print(w, statuses, statusHeaders, statusRows(statuses, o.env.Now())); err != nil {
				return err
			}
		}
		switch {
		case len(consumers) == 0:
			return nil
		case err == nil:
			_, _ = fmt.Fprintln(w) // the next write reports an error
		}
		return printer.Consumers(w, o.table, consumers)
	})
	if err == nil {
		err = o.wrong(statuses)
	}
	return cmdutil.Found(err, printed)
}

// wrong returns the error for what is wrong, which the table shows, and notes it.
func (o *options) wrong(statuses []informer.Status) error {
	o.noteSummary(statuses)
	if len(statuses) == 0 {
		return fmt.Errorf("the process of %s has no informer", o.database.Path)
	}
	for _, s := range statuses {
		if health.Wrong(s, o.env.Now()) != "" {
			return &cmdutil.StatusError{Code: cmdutil.ExitError}
		}
	}
	return nil
}

// noteSummary says in one line how those are of several scopes with which something is
// wrong.
func (o *options) noteSummary(statuses []informer.Status) {
	if len(statuses) < 2 || o.table.Format == "json" {
		return
	}
	wrong := 0
	var states []string
	of := map[string]int{}
	for _, s := range statuses {
		if health.Wrong(s, o.env.Now()) == "" {
			continue
		}
		wrong++
		state := health.State(s)
		switch {
		case strings.HasPrefix(state, "listing, "):
			state = "listing"
		case state == "caught up": // and yet something is wrong
			state = health.Wrong(s, o.env.Now())
		}
		if of[state]++; of[state] == 1 {
			states = append(states, state)
		}
	}
	for i, state := range states {
		states[i] = fmt.Sprintf("%d %s", of[state], state)
	}
	if wrong > 0 {
		o.env.Note("something is wrong with %d of %d scopes: %s", wrong, len(statuses), strings.Join(states, ", "))
	}
}

// consumers returns the consumers that follow the table: those of the process or, if
// there is none, those of a file that can be read at once.
func (o *options) consumers(ctx context.Context, alive bool) []durable.Status {
	if o.table.Format == "json" {
		return nil
	}
	if alive {
		// it may serve its status only
		found, _ := source.AskFor[[]durable.Status](ctx, o.database.Path, "/v1/consumers")
		return found
	}
	file, err := source.OpenFile(o.database.Path, nil, time.Nanosecond)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	found, _ := durable.Stored(ctx, file) // what can be read
	return found
}

// startOf returns whether the informer resumed, or in short why it listed.
func startOf(s informer.Status) string {
	reason, _, _ := strings.Cut(s.StartReason, ":")
	if reason == "" {
		return s.Start
	}
	return s.Start + ": " + reason
}

var statusHeaders = []string{
	"Resource", "Namespace", "Selectors", "State", "Objects", "RV", "Start",
	"Lag", "Event", "Bookmark", "Commit", "Pending", "Waiting", "Wrong",
}

func statusRows(statuses []informer.Status, now time.Time) [][]any {
	rows := make([][]any, 0, len(statuses))
	for _, s := range statuses {
		scope := source.ScopeInfo{LabelSelector: s.Scope.LabelSelector, FieldSelector: s.Scope.FieldSelector}
		commit, pending := "-", "-"
		if s.Commits != nil {
			commit, pending = health.Ago(s.Commits.Last, now), fmt.Sprint(s.Commits.PendingBytes)
		}
		rows = append(rows, []any{
			cmdutil.OrDash(s.Scope.Resource), cmdutil.OrDash(s.Scope.Namespace), cmdutil.OrDash(scope.Selectors()), health.State(s), int64(s.Objects),
			cmdutil.OrDash(s.Checkpoint.RV), cmdutil.OrDash(startOf(s)),
			health.Ago(s.Checkpoint.Time, now), health.Ago(s.LastEvent, now), health.Ago(s.LastBookmark, now), commit, pending,
			int64(health.Waiting(s)), cmdutil.OrDash(health.Wrong(s, now)),
		})
	}
	return rows
}
