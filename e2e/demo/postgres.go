package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/postgres/pgtest"
)

// fleet is the demo of PostgreSQL: two publishers, one of which is killed, who writes
// SQL, and a file that follows the database.
type fleet struct {
	*demo
	pg         *pgtest.Server
	pgDir      string
	publishers []*exec.Cmd
	projector  *exec.Cmd

	began  time.Time // when the first publisher started
	killed time.Time // when it was killed
}

// runPostgres is run for PostgreSQL.
func runPostgres(ctx context.Context, stdout io.Writer, opts options) error {
	return runDemo(ctx, stdout, opts, func(d *demo) error {
		f := &fleet{demo: d}
		return errors.Join(f.show(ctx), f.end())
	})
}

func (f *fleet) show(ctx context.Context) error {
	if err := f.play(ctx, []step{
		{"Start PostgreSQL", f.startPostgres},
		{"Start etcd and kube-apiserver", f.startControlPlane},
		{fmt.Sprintf("Create %d pods and %d widgets", f.opts.Pods, widgets), f.load},
		{"Build informctl", f.build},
		{"informctl postgres migrate, and migrate --sql", f.migrate},
		{"Two of: informctl publish pods widgets", f.publish},
		{"informctl publish --sql", f.project},
		{"Cold: informctl run --postgres pods widgets --once", f.follow},
		{"Kill the publisher with SIGKILL", f.killPublisher},
		{fmt.Sprintf("Create %d, change %d and delete %d pods", created, changed, deleted), f.change},
		{"The other publisher takes over", f.takenOver},
		{"Warm: informctl run --postgres pods widgets --once", f.follow},
	}); err != nil {
		return err
	}
	if err := f.out.print("\n"); err != nil {
		return err
	}
	if err := f.demo.show(ctx, headLines, "scopes", "postgres", "status"); err != nil {
		return err
	}
	for _, query := range []string{
		"SELECT namespace, count(*) AS pods FROM kube.pods GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 3",
		"SELECT change, count(*) FROM kube.history WHERE resource = 'pods' GROUP BY 1 ORDER BY 1",
		"SELECT name, object #>> '{spec,nodeName}' AS node FROM kube.history WHERE resource = 'pods' AND change = 'deleted' ORDER BY name LIMIT 3",
	} {
		if err := f.ask(ctx, query); err != nil {
			return err
		}
	}
	return f.play(ctx, []step{
		{"Compare each object in the file with the server's", f.compare},
		{"Read the API server's audit log", f.evaluate},
	})
}

// end stops the processes of the fleet and the database.
func (f *fleet) end() error {
	for _, cmd := range append(f.publishers, f.projector) {
		stop(cmd)
	}
	if f.pg != nil {
		f.pg.Stop("immediate")
	}
	if f.pgDir == "" {
		return nil
	}
	return os.RemoveAll(f.pgDir)
}

// stop kills a process, if there is one, and waits.
func stop(cmd *exec.Cmd) {
	if cmd != nil && cmd.Process != nil && cmd.ProcessState == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

func (f *fleet) startPostgres(context.Context) (_ string, err error) {
	// The path of a socket is limited, and f.dir is not open to another user.
	if f.pgDir, err = os.MkdirTemp("/tmp", "demo-pg"); err != nil {
		return "", err
	}
	f.pg, err = pgtest.Run(f.pgDir)
	return "", err
}

func (f *fleet) migrate(ctx context.Context) (string, error) {
	f.informctl.env = append(f.informctl.env, "INFORMCTL_POSTGRES="+f.pg.DSN())
	for _, args := range [][]string{{"postgres", "migrate"}, {"postgres", "migrate", "--sql"}} {
		if _, err := f.informctl.output(ctx, args...); err != nil {
			return "", err
		}
	}
	return "", nil
}

// start starts a command that goes on until it is stopped. Its messages go to a file.
func (f *fleet) start(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	log, err := os.Create(filepath.Join(f.dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the process has it open
	cmd := f.informctl.command(ctx, args...)
	cmd.Stderr = log
	return cmd, cmd.Start()
}

func (f *fleet) publish(ctx context.Context) (string, error) {
	f.began = time.Now()
	for _, name := range []string{"first", "second"} {
		cmd, err := f.start(ctx, name, append([]string{"publish"}, resources...)...)
		if err != nil {
			return "", err
		}
		f.publishers = append(f.publishers, cmd)
		// The first one has the lease when the second one starts.
		if err := f.await(ctx, f.isPublished); err != nil {
			return "", err
		}
	}
	return "published", nil
}

// await asks until the answer is yes.
func (f *fleet) await(ctx context.Context, ask func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	for {
		is, err := ask(ctx)
		if err != nil || is {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("it is not published: %w", ctx.Err())
		}
	}
}

// isPublished reports whether all resources are published.
func (f *fleet) isPublished(ctx context.Context) (bool, error) {
	out, err := f.informctl.output(ctx, "postgres", "status", "-o", "json")
	if err != nil {
		return false, err
	}
	var scopes []struct{ State string }
	if err := json.Unmarshal(out, &scopes); err != nil {
		return false, fmt.Errorf("what postgres status prints: %w", err)
	}
	published := slices.DeleteFunc(scopes, func(s struct{ State string }) bool { return s.State != "published" })
	return len(published) == len(resources), nil
}

func (f *fleet) project(ctx context.Context) (_ string, err error) {
	if f.projector, err = f.start(ctx, "sql", "publish", "--sql"); err != nil {
		return "", err
	}
	return "all pods are rows", f.await(ctx, func(ctx context.Context) (bool, error) {
		return f.hasRows(ctx, "kube.object WHERE resource = 'pods'", f.opts.Pods)
	})
}

// hasRows reports whether SQL has so many rows.
func (f *fleet) hasRows(ctx context.Context, from string, want int) (bool, error) {
	rows, err := f.query(ctx, "SELECT count(*) FROM "+from)
	return err == nil && rows[1][0] == fmt.Sprint(want), err
}

// follow brings the file up to what is published.
func (f *fleet) follow(ctx context.Context) (string, error) {
	args := append([]string{"run", "--postgres"}, resources...)
	cmd := f.informctl.command(ctx, append(args, "--db", file, "--log-format", "json", "--once")...)
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("informctl run --postgres: %w: %s", err, &said)
	}
	followed := &follower{}
	for line := range strings.Lines(said.String()) {
		followed.note(line)
	}
	if len(followed.listed) > 0 {
		return fmt.Sprintf("%d lists, of the database", len(followed.listed)), nil
	}
	return "no list", nil
}

func (f *fleet) killPublisher(context.Context) (string, error) {
	stop(f.publishers[0])
	f.killed = time.Now()
	return "", nil
}

// takenOver waits until SQL has what was changed since the publisher was killed.
func (f *fleet) takenOver(ctx context.Context) (string, error) {
	err := f.await(ctx, func(ctx context.Context) (bool, error) {
		if is, err := f.hasRows(ctx, "kube.object WHERE resource = 'pods'", f.opts.Pods+created-deleted); err != nil || !is {
			return false, err
		}
		return f.hasRows(ctx, "kube.history WHERE resource = 'pods' AND change = 'deleted'", deleted)
	})
	return fmt.Sprintf("%s after the other was killed", seconds(time.Since(f.killed))), err
}

// ask shows a question in SQL and its answer.
func (f *fleet) ask(ctx context.Context, query string) error {
	begin := time.Now()
	rows, err := f.query(ctx, query)
	if err != nil {
		return err
	}
	took := time.Since(begin)
	if err := f.out.print("=> " + query); err != nil {
		return err
	}
	return errors.Join(f.out.table(rows), f.out.print("... in "+seconds(took)+"\n\n"))
}

// query returns the names of the columns and the rows.
func (f *fleet) query(ctx context.Context, query string) ([][]string, error) {
	conn, err := pgx.Connect(ctx, f.pg.DSN())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := [][]string{nil}
	for _, column := range rows.FieldDescriptions() {
		out[0] = append(out[0], column.Name)
	}
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return nil, err
		}
		var row []string
		for _, v := range values {
			row = append(row, fmt.Sprint(v))
		}
		out = append(out, row)
	}
	return out, rows.Err()
}

// evaluate counts who has listed from the API server.
func (f *fleet) evaluate(context.Context) (string, error) {
	requests, err := f.cp.Requests(f.began)
	if err != nil {
		return "", err
	}
	of := map[bool]int{} // whether the first publisher was killed
	for _, r := range requests {
		if strings.HasPrefix(r.UserAgent, "informctl/") && isOfResources(r) && r.IsList() {
			of[r.Received.After(f.killed)]++
		}
	}
	if of[false] != len(resources) || of[true] != 0 {
		return "", fmt.Errorf("%d whole lists before the publisher was killed and %d after, want one of each resource and none", of[false], of[true])
	}
	return fmt.Sprintf("%d whole lists, one of each resource, and none after the kill", of[false]), nil
}

// isOfResources reports whether a request is for what is published.
func isOfResources(r controlplane.Request) bool { return slices.Contains(resources, r.Resource) }
