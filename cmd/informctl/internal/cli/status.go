package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/informctl/informctl/informer"
)

// statusOptions are those of status.
type statusOptions struct {
	env
	database  databaseFlag
	format    string
	noHeaders bool
}

func newStatusCommand(e env) *cobra.Command {
	o := &statusOptions{env: e}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how the process is that keeps a file",
		Long: describe(`Say how the process is that keeps a file: for each scope whether it is synced
and caught up, its objects and resource version (RV), how long ago the last event
and the last commit were, what waits to be written and for handlers, and what is
wrong. The process is asked through its socket, FILE.sock.

It ends with 0 only where a process answers and every scope is caught up.`),
		Example: `  informctl status --db informers.db
  informctl status -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := noArguments(cmd, args); err != nil {
				return err
			}
			return tableOrJSON(cmd, o.format)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runStatus(cmd.Context(), o) },
	}
	o.database.add(cmd.Flags())
	addTableFlags(cmd, &o.format, &o.noHeaders)
	return cmd
}

func runStatus(ctx context.Context, o *statusOptions) error {
	var statuses []informer.Status
	body, err := ask(ctx, o.database.path, "/v1/status")
	if err == nil {
		err = json.Unmarshal(body, &statuses)
	}
	if err != nil {
		return err
	}
	err = o.output(func(w io.Writer) error {
		if o.format == "json" {
			return printJSON(w, statuses)
		}
		return printStatuses(w, o.noHeaders, statuses, o.now())
	})
	if err != nil {
		return err
	}
	for _, s := range statuses {
		if wrong := notWell(s); wrong != "" {
			return &statusError{code: exitError} // the table says it
		}
	}
	return nil
}

// askPatience is how long a process may take to answer.
const askPatience = 10 * time.Second

// ask sends a question to the process that keeps a file.
func ask(ctx context.Context, path, question string) ([]byte, error) {
	socket := informer.SocketPath(path)
	client := http.Client{Timeout: askPatience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://informctl"+question, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("no process answers for %s: nobody listens at %s", path, socket)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("the process of %s belongs to another user: %s may not be opened", path, socket)
	case err != nil:
		return nil, fmt.Errorf("ask the process of %s: %w", path, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the process of %s: %w", path, err)
	}
	return body, nil
}

func printStatuses(w io.Writer, noHeaders bool, statuses []informer.Status, now time.Time) error {
	headers := []string{"Resource", "Namespace", "Selectors", "State", "Objects", "RV", "Start", "Event", "Commit", "Pending", "Waiting", "Wrong"}
	rows := make([][]any, 0, len(statuses))
	for _, s := range statuses {
		scope := scopeInfo{LabelSelector: s.Scope.LabelSelector, FieldSelector: s.Scope.FieldSelector}
		commit, pending, waiting := "-", "-", 0
		if s.Commits != nil {
			commit, pending = ago(s.Commits.Last, now), fmt.Sprint(s.Commits.PendingBytes)
		}
		for _, h := range s.Handlers {
			waiting += h.Waiting
		}
		rows = append(rows, []any{
			orDash(s.Scope.Resource), orDash(s.Scope.Namespace), orDash(scope.selectors()), stateOf(s), int64(s.Objects),
			orDash(s.Checkpoint.RV), orDash(s.Start), ago(s.LastEvent, now), commit, pending, int64(waiting), orDash(notWell(s)),
		})
	}
	return printTable(w, noHeaders, headers, rows)
}

func ago(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(now.Sub(t))
}

func stateOf(s informer.Status) string {
	switch {
	case s.CaughtUp && s.Synced:
		return "caught up"
	case s.Listing != "":
		return fmt.Sprintf("listing, %d", s.Listed)
	case s.Synced:
		return "synced, not caught up"
	}
	return "not synced"
}

// notWell says what is wrong; "" is nothing.
func notWell(s informer.Status) string {
	var wrong []string
	for _, problem := range []string{s.Behind, s.Missing, s.LastError} {
		if problem != "" {
			wrong = append(wrong, problem)
		}
	}
	if s.Memory != "" {
		wrong = append(wrong, "not persisted: "+s.Memory)
	}
	if s.RejectedCount > 0 {
		wrong = append(wrong, fmt.Sprintf("%d objects cannot be stored, such as %s", s.RejectedCount, s.RejectedFirst))
	}
	if s.Commits != nil && s.Commits.Degraded {
		wrong = append(wrong, "not written: "+s.Commits.Error)
	}
	if len(wrong) == 0 && (!s.CaughtUp || !s.Synced) {
		wrong = append(wrong, "not caught up")
	}
	return strings.Join(wrong, "; ")
}
