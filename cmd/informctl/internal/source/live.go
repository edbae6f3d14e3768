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
	"strconv"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/codec"
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
			return (&net.Dialer{}).DialContext(ctx, "unix", process.Socket)
		},
	}
	return process
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
	slices.SortStableFunc(d.Scopes, func(a, b store.Info) int { return cmp.Compare(a.Scope.Resource, b.Scope.Resource) })
	return nil
}

// file queries the process for the scopes it holds, and checks that its file is the one
// at path.
func (p *Process) file() (file wire.File, err error) {
	body, err := p.Ask("/v1/file", nil)
	if err != nil {
		return file, err
	}
	defer func() { _ = body.Close() }()
	if err := json.NewDecoder(body).Decode(&file); err != nil {
		return file, p.Failed(err)
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
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("the process of %s has ended before it had answered", p.Path)
	}
	return fmt.Errorf("ask the process of %s: %w", p.Path, err)
}

// liveScope is one scope of a process.
type liveScope struct {
	*Process
	info         store.Info
	codec        codec.Codec // may be nil
	dictionaries map[uint64]dictionary
}

// dictionary is a compression dictionary that the process has sent.
type dictionary struct {
	name string // in the format of wire.DictionaryName
	*codec.Zstd
}

func (s *liveScope) parts(path string, parameters url.Values) (wire.Answer, error) {
	parameters.Set("scope", s.info.ID)
	body, err := s.Ask(path, parameters)
	if err != nil {
		return wire.Answer{}, err
	}
	defer func() { _ = body.Close() }()
	answer, err := wire.Read(body)
	if err != nil {
		return wire.Answer{}, s.Failed(err)
	}
	return answer, nil
}

func (s *liveScope) keys(parameters url.Values) ([]string, error) {
	answer, err := s.parts("/v1/keys", parameters)
	return answer.Keys, err
}

func (s *liveScope) AllKeys() ([]string, error) { return s.keys(url.Values{}) }

func (s *liveScope) ByIndex(name, value string) ([]string, error) {
	return s.keys(url.Values{"index": {name}, "value": {value}, "secrets": {s.Secrets}})
}

func (s *liveScope) Labelled(selector labels.Selector) ([]string, error) {
	return s.keys(url.Values{"selector": {selector.String()}})
}

func (s *liveScope) Among(keys []string, selector labels.Selector) (found []string, err error) {
	for some := range byBytes(keys) {
		there, err := s.keys(url.Values{"key": some, "selector": {selector.String()}})
		if err != nil {
			return nil, err
		}
		found = append(found, there...)
	}
	return found, nil
}

// maxKeys is the number of bytes of keys in one query. The process accepts headers of 64
// KiB, and a byte of a key may take three in a URL.
const maxKeys = 16 << 10

// byBytes yields the keys in parts that fit into one query.
func byBytes(keys []string) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		for len(keys) > 0 {
			n, size := 1, len(keys[0])
			for ; n < len(keys) && size+len(keys[n]) < maxKeys-10*n; n++ {
				size += len(keys[n])
			}
			if !yield(keys[:n]) {
				return
			}
			keys = keys[n:]
		}
	}
}

func (s *liveScope) Fetch(keys []string, d Depth) ([]Encoded, error) {
	path := "/v1/records"
	if d == Header {
		path = "/v1/headers"
	}
	found := make(map[string]Encoded, len(keys))
	for some := range byBytes(keys) {
		have := make([]string, 0, len(s.dictionaries))
		for _, dictionary := range s.dictionaries {
			have = append(have, dictionary.name)
		}
		answer, err := s.parts(path, url.Values{"key": some, "secrets": {s.Secrets}, "have": {strings.Join(have, ",")}})
		if err != nil {
			return nil, err
		}
		for id, sent := range answer.Dictionaries {
			name := wire.DictionaryName(id, sent)
			if len(sent) == 0 {
				sent = nil
			}
			z, err := codec.NewZstd(sent)
			if err != nil {
				return nil, s.Failed(err)
			}
			s.dictionaries[id] = dictionary{name, z}
		}
		for _, h := range answer.Headers {
			found[h.Key] = headerOnly(h)
		}
		for _, r := range answer.Records {
			z := s.dictionaries[r.Dictionary].Zstd
			found[r.Key] = Encoded{func() (runtime.Object, error) { return s.decode(r, z) }}
		}
	}
	out := make([]Encoded, len(keys))
	for i, key := range keys {
		out[i] = found[key] // zero if the object was deleted since its key was read
	}
	return out, nil
}

// decode decodes a record in the same way as the store of a file.
func (s *liveScope) decode(r store.Record, z *codec.Zstd) (obj runtime.Object, err error) {
	payload := r.Payload
	if r.Dictionary != 0 {
		if z == nil {
			return nil, fmt.Errorf("object %q: dictionary %d was not sent", r.Key, r.Dictionary)
		}
		if payload, err = z.Decompress(nil, payload); err != nil {
			return nil, fmt.Errorf("object %q: %w", r.Key, err)
		}
	}
	switch {
	case s.codec != nil && s.codec.ID() == r.Codec:
		obj, err = s.codec.Decode(payload)
	case s.info.Scope.Form == store.Metadata && r.Codec == codec.IDProtobuf:
		var c codec.Codec
		if c, err = codec.For(&metav1.PartialObjectMetadata{}); err == nil {
			obj, err = c.Decode(payload)
		}
	default:
		obj, err = codec.DecodeAny(r.Codec, s.info.Scope.Kind, payload)
	}
	if err != nil {
		return nil, fmt.Errorf("object %q: %w", r.Key, err)
	}
	return obj, nil
}

func (s *liveScope) IndexValues(name string) (out []IndexValue, err error) {
	body, err := s.Ask("/v1/index", url.Values{
		"scope": {s.info.ID}, "name": {name}, "secrets": {s.Secrets}, "limit": {strconv.Itoa(1 << 30)},
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	for dec := json.NewDecoder(body); ; {
		var line struct {
			IndexValue
			wire.Failure
		}
		switch err := dec.Decode(&line); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, s.Failed(err)
		case line.Text != "":
			return nil, s.Failed(&line.Failure)
		}
		out = append(out, line.IndexValue)
	}
}
