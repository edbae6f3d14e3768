// Package source is where the commands read from: a file, the process that holds it, or a
// copy that this process has made.
//
// # Locks
//
// A file that is open for reading is locked against writers until it is closed. A process
// that keeps a file answers through its socket instead, for as long as the context of the
// caller lasts.
//
// # Errors
//
// An error about damage wraps store.ErrCorrupt. One about a process that is not there
// wraps ErrNobody. An error names the file of the user, also where a copy was read.
//
// # Concurrency
//
// A Database and its Views are used by one goroutine, except Decode.
package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// Database is a file open for reading, or the process that holds the file, and the
// scopes. It must be closed.
type Database struct {
	Path        string
	File        *bolt.DB     // nil if a process is queried
	process     *Process     // nil if a file is read
	isCopy      bool         // File is a copy, which the process has made
	leftover    string       // its directory, which NFS keeps while the copy is open
	at          store.Place  // the moment to read of a file; zero is now
	server      string       // version of the process's server; "" if it is unknown
	Stored      []store.Info // the scopes of the file
	Scopes      []store.Info // those that can be read, also from memory
	cluster     string       // the only one that is read; "" is all
	ShowSecrets bool
	WithGone    bool // Find finds scopes of which only the log is left
}

// At returns the database as it was at a place; the zero Place is now. Both share the
// open file, which is closed once.
func (d *Database) At(place store.Place) *Database {
	then := *d
	then.at = place
	return &then
}

// Close closes the file, or the connections to the process.
func (d *Database) Close() error {
	if d.process != nil {
		return d.process.Close()
	}
	return errors.Join(d.File.Close(), os.RemoveAll(d.leftover))
}

// OpenScope returns a scope. If c is not nil, it decodes the records in its format.
func (d *Database) OpenScope(info store.Info, c codec.Codec) (store.Reader, error) {
	if d.process != nil {
		return &liveScope{Process: d.process, info: info, codec: c, dictionaries: map[uint64]dictionary{}}, nil
	}
	s, err := d.File.Open(info.Scope, store.Options{Codec: c})
	if err == nil && !d.at.IsZero() {
		err = isInLog(s, info.Scope, d.at)
	}
	return s, err
}

// IsFile reports whether the file itself is read, since no process holds it.
func (d *Database) IsFile() bool { return d.process == nil && !d.isCopy }

// Process returns the process through which the scopes are read, nil if it is a file.
func (d *Database) Process() *Process { return d.process }

// present returns the scopes that have a state at the moment that is read.
func (d *Database) present() []store.Info {
	if d.WithGone || !d.at.IsZero() {
		return d.Scopes
	}
	return slices.DeleteFunc(slices.Clone(d.Scopes), IsGone)
}

// Resources returns the resources of the file, sorted.
func (d *Database) Resources() []string {
	var names []string
	for _, info := range d.present() {
		names = append(names, info.Scope.Resource)
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// ServerVersion returns the version of the server of the cluster that is read, "" if it
// is unknown. Of several clusters, or from a process, it is that of the server that run
// has last followed.
func (db *Database) ServerVersion(ctx context.Context) string {
	if db.File == nil {
		return db.server
	}
	values, err := db.File.Ledger(ctx, wire.ServerLedger)
	if err != nil {
		return "" // what is read of the file reports the damage
	}
	if len(Clusters(db.Scopes)) == 1 {
		return string(values[wire.ServerVersionOf(db.Scopes[0].Scope.Cluster)])
	}
	return string(values[wire.ServerVersion])
}

// Find returns the file's scopes of a resource.
func (d *Database) Find(resource string) ([]store.Info, error) {
	scopes := d.present()
	if resource == "" {
		return scopes, nil
	}
	found := resources.Meant(scopes, resource)
	if len(found) == 0 {
		name, group, dotted := strings.Cut(resource, ".")
		named, err := d.resourcesNamed(name)
		if err != nil {
			return nil, err
		}
		for _, info := range scopes {
			plural, _, _ := strings.Cut(info.Scope.Resource, ".")
			isNamed := slices.Contains(named, info.Scope.Resource) && (!dotted || resources.Is(info.Scope, plural+"."+group))
			if isNamed || resources.IsInCategory(info.Scope, resource) {
				found = append(found, info)
			}
		}
	}
	if len(found) == 0 {
		return nil, d.unknown(resource)
	}
	return found, nil
}

// FindWhole is Find for what should be whole: it notes that "all" is a category of
// kubectl's and not everything.
func (d *Database) FindWhole(e cmdutil.Env, resource string) ([]store.Info, error) {
	infos, err := d.Find(resource)
	if err == nil && strings.EqualFold(resource, "all") && len(infos) < len(d.present()) {
		e.Note("all is kubectl's category and not everything, for which RESOURCE is left out")
	}
	return infos, err
}

// unknown returns the error for a resource that is not there. It says so where the log of
// one is.
func (d *Database) unknown(resource string) error {
	err := resources.Unknown(resource, d.Path+" holds", d.Resources(), "informctl info")
	all := *d
	if all.WithGone = true; d.WithGone || !d.at.IsZero() {
		return err
	}
	gone, findErr := all.Find(resource)
	if findErr != nil {
		return err
	}
	return fmt.Errorf("%w; of %s, which the server no longer serves, history, restore and query --at read the log", err, gone[0].Scope.Resource)
}
