package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/inspect"
	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
)

// ErrNobody indicates that no process listens on the socket of a file.
var ErrNobody = errors.New("nobody listens")

// askPatience is how long a process may take to begin an answer.
const askPatience = 10 * time.Second

// Process queries the process that holds a file, until its context ends.
type Process struct {
	Ctx     context.Context // of all requests
	Path    string          // of the file
	Socket  string
	Secrets string // whether Secrets are sent: "redact" or "show"
	client  http.Client
}

// NewProcess returns the process of a file. It asks nothing. The caller must close it.
func NewProcess(ctx context.Context, path string, showSecrets bool) *Process {
	process := &Process{Ctx: ctx, Path: path, Socket: inspect.SocketPath(path), Secrets: "redact"}
	if showSecrets {
		process.Secrets = "show"
	}
	process.client.Transport = &http.Transport{
		ResponseHeaderTimeout: askPatience,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if err := checkOwner(process.Socket, path); err != nil {
				return nil, err
			}
			return (&net.Dialer{}).DialContext(ctx, "unix", process.Socket)
		},
	}
	return process
}

// errForeign indicates a socket that another user has made: he may say what he likes.
var errForeign = errors.New("it belongs neither to this user nor to the owner of the file")

// checkOwner returns errForeign if the socket of a file is another user's: the directory
// may be one that everybody can write to.
func checkOwner(socket, path string) error {
	made, err := os.Lstat(socket)
	if err != nil {
		return err
	}
	by, ok := made.Sys().(*syscall.Stat_t)
	if !ok || by.Uid == 0 || int(by.Uid) == os.Geteuid() {
		return nil
	}
	if file, err := os.Stat(path); err == nil {
		if of, ok := file.Sys().(*syscall.Stat_t); ok && of.Uid == by.Uid {
			return nil
		}
	}
	return errForeign
}

// OpenProcess returns a database that is read through the process that holds the file. It
// returns ErrNobody if no process answers.
func OpenProcess(ctx context.Context, path string, showSecrets bool) (*Database, error) {
	process := NewProcess(ctx, path, showSecrets)
	db := &Database{process: process, Path: path, ShowSecrets: showSecrets}
	if err := db.describe(process); err != nil {
		_ = process.Close()
		return nil, err
	}
	return db, nil
}

// describe queries the process for the scopes that it holds now.
func (d *Database) describe(process *Process) error {
	file, err := process.file()
	if err != nil {
		return err
	}
	d.server, d.Stored, d.Scopes = file.Server, file.Scopes, slices.Clone(file.Scopes)
	for _, info := range file.Memory {
		d.Scopes = slices.DeleteFunc(d.Scopes, func(stored store.Info) bool { return stored.ID == info.ID })
		d.Scopes = append(d.Scopes, info)
	}
	d.leaveCluster()
	slices.SortStableFunc(d.Scopes, func(a, b store.Info) int { return cmp.Compare(a.Scope.Resource, b.Scope.Resource) })
	return nil
}

// file queries the process for the scopes it holds, and checks that its file is the one
// at path.
func (p *Process) file() (file wire.File, err error) {
	if file, err = Document[wire.File](p, "/v1/file", nil); err != nil {
		return file, err
	}
	info, err := os.Stat(p.Path)
	if err != nil {
		return file, OpenError(p.Path, err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && (uint64(stat.Dev) != file.Device || stat.Ino != file.Inode) { //nolint:unconvert // Dev is an int32 on macOS
		return file, fmt.Errorf("the process that answers at %s keeps another file than %s: %s", p.Socket, p.Path, file.Path)
	}
	return file, nil
}

// Close closes the connections.
func (p *Process) Close() error {
	p.client.CloseIdleConnections()
	return nil
}

// Ask returns the body of an answer. The caller must close it. Without a process, the
// error wraps ErrNobody; after the context has ended, it is cmdutil.ErrInterrupted.
func (p *Process) Ask(path string, parameters url.Values) (io.ReadCloser, error) {
	u := "http://informctl" + path
	if len(parameters) > 0 {
		u += "?" + parameters.Encode()
	}
	request, err := http.NewRequestWithContext(p.Ctx, http.MethodGet, u, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := p.client.Do(request)
	switch {
	case p.Ctx.Err() != nil:
		return nil, cmdutil.ErrInterrupted
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("no process answers for %s: %w at %s", p.Path, ErrNobody, p.Socket)
	case errors.Is(err, errForeign):
		return nil, fmt.Errorf("the socket %s of %s is not asked: %w", p.Socket, p.Path, errForeign)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("the process of %s belongs to another user: %s may not be opened", p.Path, p.Socket)
	case os.IsTimeout(err):
		return nil, fmt.Errorf("the process of %s does not answer", p.Path)
	case err != nil:
		// err is not wrapped: EPIPE from the process would look like EPIPE from the
		// output. It would also contain every key of the query.
		return nil, fmt.Errorf("the process of %s has ended before it had answered", p.Path)
	case response.StatusCode == http.StatusOK:
		return response.Body, nil
	}
	defer func() { _ = response.Body.Close() }()
	var answer wire.Failure
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil || json.Unmarshal(body, &answer) != nil || answer.Text == "" {
		answer.Text = response.Status
	}
	return nil, p.Failed(&answer)
}

// Failed describes an error that a body of Ask has returned, or that its content is.
func (p *Process) Failed(err error) error {
	if p.Ctx.Err() != nil {
		return cmdutil.ErrInterrupted
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, store.ErrClosed) {
		return fmt.Errorf("the process of %s has ended before it had answered", p.Path)
	}
	return fmt.Errorf("ask the process of %s: %w", p.Path, err)
}

// Document returns the answer that is one JSON document. Errors: as Ask and Failed.
func Document[T any](p *Process, path string, parameters url.Values) (answer T, err error) {
	body, err := p.Ask(path, parameters)
	if err != nil {
		return answer, err
	}
	defer func() { _ = body.Close() }()
	if err := json.NewDecoder(body).Decode(&answer); err != nil {
		return answer, p.Failed(err)
	}
	return answer, nil
}
