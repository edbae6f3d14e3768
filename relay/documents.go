package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
)

// Documents are what an API server says of itself: its version, its resources and their
// schemas. They are kept in the ledger of a file, so that they are there without the
// server, too. The zero value has none. It is safe for concurrent use.
type Documents struct {
	ledger store.Ledger

	mu        sync.RWMutex // protects the fields below, whose values do not change
	cluster   string       // see Of
	version   []byte       // JSON; nil: not known
	groups    []apidiscoveryv2.APIGroupDiscovery
	resources map[schema.GroupVersionResource]apidiscoveryv2.APIResourceDiscovery
	index     openAPIIndex
}

// openAPIIndex is /openapi/v3.
type openAPIIndex struct {
	Paths map[string]struct {
		URL string `json:"serverRelativeURL"` // with a hash
	} `json:"paths"`
}

const (
	// ledgerOfDocuments is how the names of documents begin in a ledger; the path
	// follows.
	ledgerOfDocuments = "relay/documents"
	documentKey       = "json.zst"
	clusterKey        = "cluster" // whose document it is

	versionPath, corePath, groupsPath, openAPIPath = "/version", "/api", "/apis", "/openapi/v3"

	// aggregated is the form of the discovery that servers since 1.30 have (KEP-3352).
	aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

// OpenDocuments returns the documents that a ledger keeps. What cannot be read is not
// there until Fetch has brought it.
func OpenDocuments(ctx context.Context, ledger store.Ledger) *Documents {
	d := &Documents{ledger: ledger}
	_ = d.load(ctx)
	return d
}

// Of makes them the documents of a cluster, by its identity: a file may have those of
// another one, which are not used then. OpenDocuments opens those of none. It is not
// called while Fetch runs.
func (d *Documents) Of(ctx context.Context, cluster string) {
	if cluster == d.whose() {
		return
	}
	d.mu.Lock()
	d.cluster, d.version, d.groups, d.resources, d.index = cluster, nil, nil, nil, openAPIIndex{}
	d.mu.Unlock()
	_ = d.load(ctx)
}

// whose returns the cluster whose documents they are.
func (d *Documents) whose() string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.cluster
}

// isEmpty reports whether nothing is known of what the server has.
func (d *Documents) isEmpty() bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.groups) == 0
}

// load reads what is asked for often.
func (d *Documents) load(ctx context.Context) error {
	version, err := d.read(ctx, versionPath)
	if err != nil {
		return err
	}
	var groups []apidiscoveryv2.APIGroupDiscovery
	for _, path := range []string{corePath, groupsPath} {
		var found apidiscoveryv2.APIGroupDiscoveryList
		if err := d.readInto(ctx, path, &found); err != nil {
			return err
		}
		groups = append(groups, found.Items...)
	}
	var index openAPIIndex
	if err := d.readInto(ctx, openAPIPath, &index); err != nil {
		return err
	}
	resources := map[schema.GroupVersionResource]apidiscoveryv2.APIResourceDiscovery{}
	for _, g := range groups {
		for _, v := range g.Versions {
			for _, r := range v.Resources {
				resources[schema.GroupVersionResource{Group: g.Name, Version: v.Version, Resource: r.Resource}] = r
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.version, d.groups, d.resources, d.index = version, groups, resources, index
	return nil
}

// read returns a document, nil if it is not kept.
func (d *Documents) read(ctx context.Context, path string) ([]byte, error) {
	if d.ledger == nil {
		return nil, nil
	}
	values, err := d.ledger.Ledger(ctx, ledgerOfDocuments+path)
	if err != nil && !errors.Is(err, store.ErrCorrupt) {
		return nil, err
	}
	value, ok := values[documentKey]
	if !ok || string(values[clusterKey]) != d.whose() {
		return nil, nil
	}
	z, err := codec.NewZstd(nil)
	if err != nil {
		return nil, err
	}
	return z.Decompress(nil, value)
}

func (d *Documents) readInto(ctx context.Context, path string, into any) error {
	b, err := d.read(ctx, path)
	if err != nil || b == nil {
		return err
	}
	return json.Unmarshal(b, into)
}

// Fetch asks a server for its documents, and keeps what has changed.
func (d *Documents) Fetch(ctx context.Context, config *rest.Config) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	f := &fetching{Documents: d, client: client, base: base}
	for path, accept := range map[string]string{versionPath: "", corePath: aggregated, groupsPath: aggregated} {
		if err := f.fetch(ctx, path, accept); err != nil {
			return err
		}
	}
	d.mu.RLock()
	had := d.index
	d.mu.RUnlock()
	if err := d.load(ctx); err != nil { // a schema may fail
		return err
	}
	b, err := f.get(ctx, openAPIPath, "")
	if err != nil {
		return err
	}
	var index openAPIIndex
	if err := json.Unmarshal(b, &index); err != nil {
		return fmt.Errorf("%s: %w", openAPIPath, err)
	}
	var failed []error // as of an aggregated API that does not work
	for name, now := range index.Paths {
		if had.Paths[name] == now {
			// The file may have lost it while the index was in memory.
			if b, err := f.read(ctx, openAPIPath+"/"+name); err == nil && b != nil {
				continue
			}
		}
		if err := f.fetch(ctx, openAPIPath+"/"+name, ""); err != nil {
			failed = append(failed, err)
			delete(index.Paths, name)
		}
	}
	if len(failed) > 0 {
		if b, err = json.Marshal(index); err != nil {
			return err
		}
	}
	// The index comes last: it says which of the others are there.
	failed = append(failed, f.keep(ctx, openAPIPath, b), d.load(ctx))
	return errors.Join(failed...)
}

type fetching struct {
	*Documents
	client *http.Client
	base   *url.URL
}

func (f *fetching) fetch(ctx context.Context, path, accept string) error {
	b, err := f.get(ctx, path, accept)
	if err != nil {
		return err
	}
	return f.keep(ctx, path, b)
}

// maxDocument bounds a document, in bytes.
const maxDocument = 64 << 20

func (f *fetching) get(ctx context.Context, path, accept string) ([]byte, error) {
	if accept == "" {
		accept = "application/json"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.base.JoinPath(path).String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", accept)
	res, err := f.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: the server answers %s", path, res.Status)
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, maxDocument+1))
	if err == nil && len(b) > maxDocument {
		err = fmt.Errorf("%s: the answer has more than %d bytes", path, maxDocument)
	}
	return b, err
}

// keep writes a document if it has changed.
func (f *fetching) keep(ctx context.Context, path string, b []byte) error {
	was, err := f.read(ctx, path)
	if err == nil && string(was) == string(b) {
		return nil
	}
	z, err := codec.NewZstd(nil)
	if err != nil {
		return err
	}
	values := map[string][]byte{documentKey: z.Compress(nil, b)}
	if cluster := f.whose(); cluster != "" {
		values[clusterKey] = []byte(cluster)
	}
	return f.ledger.ReplaceLedger(ctx, ledgerOfDocuments+path, values)
}

// openAPI answers a request for a schema. ok is false if there is none.
func (d *Documents) openAPI(ctx context.Context, path string) (b []byte, ok bool, err error) {
	d.mu.RLock()
	_, known := d.index.Paths[strings.TrimPrefix(path, openAPIPath+"/")]
	d.mu.RUnlock()
	if path != openAPIPath && !known {
		return nil, false, nil
	}
	if b, err = d.read(ctx, path); err != nil {
		return nil, false, apierrors.NewInternalError(err)
	}
	return b, b != nil, nil
}
