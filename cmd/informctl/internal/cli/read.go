package cli

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/informctl/informctl/store"
)

// readOptions are what dump and query have in common.
type readOptions struct {
	env
	database databaseFlag
	format   outputFlags

	namespace     string
	allNamespaces bool
	selector      string
	indexes       []string
	wanted        []wanted

	filter filter
}

func (o *readOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	o.database.add(flags)
	o.format.add(cmd)
	flags.StringVarP(&o.namespace, "namespace", "n", "", "Only objects of this namespace.")
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Objects of all namespaces, which is the default.")
	flags.StringVarP(&o.selector, "selector", "l", "", "Only objects whose labels match, as kubectl has it.")
}

// complete checks all that can be wrong with a command line before a file is read.
func (o *readOptions) complete(cmd *cobra.Command, args []string) (err error) {
	if o.wanted, err = parseWanted(cmd, args); err != nil {
		return err
	}
	if err := o.format.complete(cmd); err != nil {
		return err
	}
	o.filter = filter{namespace: o.namespace, indexes: o.indexes}
	if o.allNamespaces {
		o.filter.namespace = ""
	}
	for _, spec := range o.indexes {
		if !strings.Contains(spec, "=") {
			return usagef(cmd, "--index %q is not NAME=VALUE", spec)
		}
	}
	if o.filter.labels, err = labels.Parse(o.selector); err != nil {
		return usagef(cmd, "--selector %q: %w", o.selector, err)
	}
	return nil
}

// runRead prints the objects that the options select.
func runRead(o *readOptions) error {
	db, err := o.database.open()
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	items, err := o.choose(db)
	if err != nil {
		return err
	}
	if o.format.count {
		return o.output(func(w io.Writer) error {
			_, err := fmt.Fprintln(w, len(items))
			return err
		})
	}
	if len(items) == 0 {
		o.note("nothing found in %s", db.Path())
	}
	return o.output(func(w io.Writer) error {
		return print(w, items, o.format.printer(items, o.now()))
	})
}

// choose returns the items that the options select, in the order of output.
func (o *readOptions) choose(db *database) ([]item, error) {
	var items []item
	views := map[string]*view{}
	for _, want := range o.wanted {
		infos, err := db.find(want.resource)
		if err != nil {
			return nil, err
		}
		opened, err := o.open(db, infos)
		if err != nil {
			return nil, err
		}
		f := o.filter
		f.names = want.names
		for _, v := range opened {
			if known := views[v.info.ID]; known != nil {
				v = known
			}
			views[v.info.ID] = v
			keys, err := f.keys(db.Path(), v)
			if err != nil {
				return nil, err
			}
			items = slices.Grow(items, len(keys))
			for _, key := range keys {
				namespace, name, ok := strings.Cut(key, "/")
				if !ok {
					namespace, name = "", key
				}
				items = append(items, item{v, namespace, name})
			}
		}
	}
	slices.SortFunc(items, compareItems)
	return o.withoutRepeats(slices.Compact(items)), nil
}

// withoutRepeats keeps one of an object that several scopes of one resource hold:
// that of the scope which is complete up to the latest resource version.
func (o *readOptions) withoutRepeats(items []item) []item {
	var kept []item
	for _, i := range items {
		if n := len(kept); n > 0 && isSameObject(kept[n-1], i) {
			if isLater(i.view, kept[n-1].view) {
				kept[n-1] = i
			}
			continue
		}
		kept = append(kept, i)
	}
	if n := len(items) - len(kept); n > 0 {
		o.note("%d objects are held by several scopes; the latest state of each is shown", n)
	}
	return kept
}

func isSameObject(a, b item) bool {
	return a.key() == b.key() && a.view.info.Scope.Resource == b.view.info.Scope.Resource &&
		a.view.info.Scope.Cluster == b.view.info.Scope.Cluster
}

func isLater(a, b *view) bool {
	order, err := resourceversion.CompareResourceVersion(a.info.Checkpoint.RV, b.info.Checkpoint.RV)
	return err == nil && order > 0 || b.info.Checkpoint.RV == ""
}

// open opens the scopes that can answer and says which cannot. It is an error
// if none can: an empty answer would look like one.
func (o *readOptions) open(db *database, infos []store.Info) ([]*view, error) {
	decoder, err := o.format.decoder()
	if err != nil {
		return nil, err
	}
	views, left, err := db.open(infos, decoder)
	if err != nil {
		return nil, err
	}
	if len(left) > 0 && len(views) == 0 {
		return nil, fmt.Errorf("%w: %s", store.ErrIncomplete, strings.Join(left, ", "))
	}
	for _, scope := range left {
		o.note("%s: left out, its first list is not complete", scope)
	}
	for _, v := range views {
		if cp := v.info.Checkpoint; cp.RV == "" {
			o.note("%s: to be listed again, so objects may be missing or old: %s", v.info.Scope, cp.Reason)
		}
	}
	able := slices.DeleteFunc(slices.Clone(views), func(v *view) bool { return !v.hasIndexes(o.indexes) })
	if len(able) == 0 {
		return views, nil // whose index is missing is said when it is asked for
	}
	for _, v := range views {
		if !slices.Contains(able, v) {
			o.note("%s: left out, its indexes are %s", v.info.Scope, v.indexNames())
		}
	}
	return able, nil
}

// chunk is how many objects are decoded and rendered at a time, in parallel.
const chunk = 128

// print renders the items by chunks, so that memory does not grow with them.
func print(w io.Writer, items []item, p printer) error {
	if err := p.begin(w); err != nil {
		return err
	}
	pieces := make([]piece, min(chunk, len(items)))
	for part := range slices.Chunk(items, chunk) {
		pieces = pieces[:len(part)]
		if err := renderAll(part, pieces, p); err != nil {
			return err
		}
		if err := p.emit(w, pieces); err != nil {
			return err
		}
		clear(pieces)
	}
	return p.end(w)
}

func renderAll(items []item, pieces []piece, p printer) error {
	var g errgroup.Group
	workers := min(runtime.GOMAXPROCS(0), 1+len(items)/16)
	for worker := range workers {
		g.Go(func() error {
			for i := worker; i < len(items); i += workers {
				obj, err := items[i].load(p.decodes())
				if err != nil {
					return err
				}
				if pieces[i], err = p.render(obj); err != nil {
					return fmt.Errorf("print %s %q: %w", items[i].view.info.Scope.Resource, items[i].key(), err)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// load reads an item's object.
func (i item) load(decode bool) (object, error) {
	o := object{item: i}
	if !decode {
		return o, nil
	}
	e, ok, err := i.view.Entry(i.key())
	if err != nil {
		return o, err
	}
	if !ok {
		return o, fmt.Errorf("%s %q: %w", i.view.info.Scope.Resource, i.key(), errLost)
	}
	o.bytes = len(e.Raw)
	if o.Object, err = i.view.Decode(e); err != nil {
		return o, err
	}
	kind := o.GetObjectKind()
	if gvk := kind.GroupVersionKind(); gvk.Kind == "" || gvk.Version == "" {
		if gvk = i.view.info.Scope.Kind; gvk.Kind == "" {
			gvk = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata") // others say their kind
		}
		kind.SetGroupVersionKind(gvk)
	}
	return o, nil
}

// errLost is damage: nothing changes a file that is open for reading.
var errLost = fmt.Errorf("%w: a key without an object", store.ErrCorrupt)
