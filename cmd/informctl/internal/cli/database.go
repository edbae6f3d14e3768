package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/inspect"
	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// databaseFlag is --db and, for commands that open the file, the flags for its keys.
type databaseFlag struct {
	path      string
	kube      *genericclioptions.ConfigFlags // name the context; nil: add adds them
	byContext bool                           // path is that of the context
	keyFlags
}

func (f *databaseFlag) add(e cmdutil.Env, cmd *cobra.Command) {
	f.addPath(e, cmd)
	f.keyFlags.add(cmd.Flags())
}

func (f *databaseFlag) addPath(e cmdutil.Env, cmd *cobra.Command) {
	f.path = os.Getenv("INFORMCTL_DB")
	cmd.Flags().Var((*fileName)(&f.path), "db", "The file that holds the objects; else $INFORMCTL_DB, informers.db if that is there, the file of the context.")
	if f.kube == nil {
		f.addContext(cmd)
	}
	cmd.PreRunE = func(*cobra.Command, []string) error { return f.complete(e) }
}

// fileName is the value of a flag. It refuses "", which an unset variable of a script
// would pass.
type fileName string

func (f *fileName) String() string { return string(*f) }
func (f *fileName) Type() string   { return "string" }

// Set implements pflag.Value.
func (f *fileName) Set(name string) error {
	if name == "" {
		return errors.New("it names no file")
	}
	*f = fileName(name)
	return nil
}

// database is a file open for reading, or the process that holds the file, and the
// scopes.
type database struct {
	origin
	path        string
	file        *bolt.DB     // nil if a process is queried
	server      string       // version of the process's server; "" if it is unknown
	stored      []store.Info // the scopes of the file
	scopes      []store.Info // those that can be read, also from memory
	showSecrets bool
	withGone    bool // find finds scopes of which only the log is left
}

// open opens the file for reading, or queries the process that holds it, until ctx ends.
// The caller must close the database.
func (f *databaseFlag) open(ctx context.Context, showSecrets bool) (*database, error) {
	// A single attempt: the process that holds the file may answer queries.
	file, err := openFile(f.path, f.keys, time.Nanosecond)
	if errors.Is(err, store.ErrLocked) {
		db, askErr := openLive(ctx, f.path, showSecrets)
		if !errors.Is(askErr, errNobody) {
			return db, askErr
		}
		// Other commands hold a file for a moment and do not serve queries.
		if file, err = openFile(f.path, f.keys, 0); errors.Is(err, store.ErrLocked) {
			return nil, fmt.Errorf("%s is in use by another process, which does not answer at %s; try again when that has ended",
				f.path, inspect.SocketPath(f.path))
		}
	}
	return databaseOf(f.path, showSecrets, file, err)
}

// openDatabase opens the file itself.
func openDatabase(path string, keys codec.KeyProvider, showSecrets bool) (*database, error) {
	file, err := openFile(path, keys, 0)
	return databaseOf(path, showSecrets, file, err)
}

func openFile(path string, keys codec.KeyProvider, patience time.Duration) (*bolt.DB, error) {
	// Decoded objects become garbage at once and little is kept. Collecting garbage less
	// often saves a fifth of the time for about ten megabytes of memory.
	debug.SetGCPercent(400)
	if err := refuseSpecial(path); err != nil {
		return nil, err
	}
	return bolt.OpenReadOnly(path, bolt.Options{LockTimeout: patience, Keys: keys, Logger: noLogger})
}

func databaseOf(path string, showSecrets bool, file *bolt.DB, err error) (*database, error) {
	if err != nil {
		return nil, openError(path, err)
	}
	scopes, err := file.Scopes()
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &database{origin: fileSource{DB: file}, path: path, file: file, stored: scopes, scopes: scopes, showSecrets: showSecrets}, nil
}

// refuseSpecial refuses a path that is neither a file nor a directory before it is
// opened: opening a named pipe would block until another process opens it for writing.
func refuseSpecial(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return nil // opening the file reports the error
	}
	for mode, what := range map[fs.FileMode]string{
		fs.ModeNamedPipe: "a named pipe", fs.ModeDevice: "a device", fs.ModeSocket: "a socket",
	} {
		if info.Mode()&mode != 0 {
			return fmt.Errorf("%s is %s; an informctl cache is a regular file", path, what)
		}
	}
	return nil
}

// noLogger is for commands that print the errors themselves.
var noLogger = funcr.New(func(string, string) {}, funcr.Options{})

// openToWrite opens the file for writing. Without the file nothing can be written.
func openToWrite(path string, keys codec.KeyProvider) (*bolt.DB, error) {
	db, err := bolt.Open(path, bolt.Options{Keys: keys, Logger: noLogger})
	if err == nil && db.Suspended() != nil {
		return nil, errors.Join(db.Suspended(), db.Close())
	}
	return db, err
}

// openError describes to a user why a file cannot be opened.
func openError(path string, err error) error {
	var damage *store.CorruptionError
	var file *fs.PathError
	var network *bolt.NetworkFSError
	switch {
	case errors.As(err, &network):
		return fmt.Errorf("%s is on %s, where locks and mapped memory cannot be trusted; --db must name a file on a local disk", path, network.FileSystem)
	case errors.As(err, &damage):
		return damage
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: no such file; informctl run RESOURCE --db %s makes one", path, path)
	case errors.Is(err, store.ErrLocked):
		return lockedError(path)
	case errors.Is(err, store.ErrNotOurs) && isDirectory(path):
		return fmt.Errorf("%s is a directory; an informctl cache is a regular file", path)
	case errors.Is(err, store.ErrNotOurs):
		return fmt.Errorf("%s is not an informctl cache; it was not changed", path)
	case errors.As(err, &file):
		return fmt.Errorf("%s: %w", path, file.Err)
	}
	return err
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// lockedError is the path of a file that another process holds.
type lockedError string

func (e lockedError) Error() string {
	return string(e) + " is in use by another process; try again when that has ended"
}

func (lockedError) Is(target error) bool { return target == store.ErrLocked }

// then returns the database as it was at a place; the zero Place is now. Both share the
// open file, which is closed once.
func (d *database) then(place store.Place) *database {
	then := *d
	then.origin = at(d.origin, place)
	return &then
}

// isFile reports whether the file itself is read, since no process holds it.
func (d *database) isFile() bool {
	_, ok := d.origin.(fileSource)
	return ok
}

// process returns the process through which the scopes are read, nil if it is a file.
func (d *database) process() *live {
	l, _ := d.origin.(*live)
	return l
}

// present returns the scopes that have a state at the moment that is read.
func (d *database) present() []store.Info {
	if d.withGone || isPast(d.origin) {
		return d.scopes
	}
	return slices.DeleteFunc(slices.Clone(d.scopes), isGone)
}

// resources returns the resources of the file, sorted.
func (d *database) resources() []string {
	var names []string
	for _, info := range d.present() {
		names = append(names, info.Scope.Resource)
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// view is one scope that is open for reading.
type view struct {
	info store.Info
	reader
	showSecrets bool
	later       []*view // of the same collection, with later states; set by linkOverlaps
	search      search
}

// search says how objects of a scope were found, for --explain.
type search struct {
	by                     []string // the indexes that were used
	keys, decoded, matched int      // numbers of objects
	labels                 string   // the objects whose labels were read
}

// explanation says how objects were found, for a person.
func (v *view) explanation() string {
	s, by := v.search, "no index"
	if len(s.by) > 0 {
		by = "index " + strings.Join(s.by, " and ")
	}
	if s.labels != "" {
		by += ", the labels of " + s.labels
	}
	return fmt.Sprintf("%s: %s: %d of %d objects looked at, %d decoded to choose, %d chosen",
		v.info.Scope, by, s.keys, v.info.Objects, s.decoded, s.matched)
}

// whole is the decoder of commands that need whole objects.
func whole(store.Scope) (codec.Codec, error) { return nil, nil }

// opened are scopes that are open for reading.
type opened struct {
	views  []*view
	left   []string // the names of those whose first list is not complete
	unread unread
}

// open opens the complete scopes. If decoder returns a codec for a scope, that codec
// decodes the records in its format.
func (d *database) open(infos []store.Info, decoder func(store.Scope) (codec.Codec, error)) (out opened, err error) {
	for _, info := range infos {
		if !info.Complete {
			out.left = append(out.left, info.Scope.String())
			continue
		}
		v, err := d.openView(info, decoder)
		if err != nil {
			if err := out.unread.add(info, err); err != nil {
				return opened{}, fmt.Errorf("open %s: %w", info.Scope, err)
			}
			continue
		}
		out.views = append(out.views, v)
	}
	return out, nil
}

func (d *database) openView(info store.Info, decoder func(store.Scope) (codec.Codec, error)) (*view, error) {
	c, err := decoder(info.Scope)
	if err != nil {
		return nil, err
	}
	r, err := d.openScope(info, c)
	if err != nil {
		return nil, err
	}
	if s, ok := r.(*fileScope); ok {
		if info, err = s.infoThen(); err != nil {
			return nil, err
		}
	}
	return &view{info: info, reader: r, showSecrets: d.showSecrets}, nil
}

// serverVersion returns the version of the server that run has last followed, "" if it is
// unknown.
func (db *database) serverVersion(ctx context.Context) string {
	if db.file == nil {
		return db.server
	}
	values, err := db.file.Ledger(ctx, wire.ServerLedger)
	if err != nil {
		return "" // what is read of the file reports the damage
	}
	return string(values[wire.ServerVersion])
}

// find returns the file's scopes of a resource.
func (d *database) find(resource string) ([]store.Info, error) {
	scopes := d.present()
	if resource == "" {
		return scopes, nil
	}
	var found []store.Info
	for _, info := range scopes {
		if resources.Is(info.Scope, resource) {
			found = append(found, info)
		}
	}
	if len(found) == 0 {
		named, err := d.resourcesNamed(resource)
		if err != nil {
			return nil, err
		}
		for _, info := range scopes {
			if slices.Contains(named, info.Scope.Resource) || resources.IsInCategory(info.Scope, resource) {
				found = append(found, info)
			}
		}
	}
	if len(found) == 0 {
		return nil, resources.Unknown(resource, d.path+" holds", d.resources(), "informctl info")
	}
	return found, nil
}
