package show

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/cmd/informctl/internal/selection"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
)

// Changes are the changes of the selected objects, as a process receives them. The flags
// of Selection are complete before Run is called.
type Changes struct {
	Selection selection.Options
	Initial   bool   // what is there already comes first
	Since     string // a resource version; "" means now
	Plain     bool   // objects as query prints them, without what has become of them
	clusters  bool   // there are several
}

// Run prints the changes until ctx ends, which is no error, or the process does.
func (o *Changes) Run(ctx context.Context) error {
	err := runWatch(ctx, o)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// runWatch blocks until the context or the process ends. It starts one goroutine per
// scope, which ends before runWatch returns.
func runWatch(ctx context.Context, o *Changes) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	process := source.NewProcess(ctx, o.Selection.Database.Path, o.Selection.ShowSecrets)
	defer func() { _ = process.Close() }()
	views, err := followedBy(process, o.Selection.Wanted, o.Selection.Filter.Namespace)
	if errors.Is(err, source.ErrNobody) {
		return source.Unanswered(process.Path,
			fmt.Errorf("no process keeps %s, so nothing changes in it: %w at %s", process.Path, source.ErrNobody, process.Socket))
	}
	if err == nil {
		views, err = o.ofCluster(process.Path, views)
	}
	if err != nil {
		return err
	}
	if o.Selection.Sieve.Where != nil {
		o.Selection.Sieve.Where.GoesOn = true
	}
	for _, v := range views {
		o.Selection.NoteHidden(o.Selection.Wanted[0].Resource, v.Info.Scope)
	}
	if o.Since != "" {
		if err := haveOneHistory(views); err != nil {
			return fmt.Errorf("--since-rv: %w", err)
		}
	}
	parameters := url.Values{
		"initial": {strconv.FormatBool(o.Initial)}, "secrets": {process.Secrets},
		"namespace": {o.Selection.Filter.Namespace}, "selector": {o.Selection.Selector}, "old": {strconv.FormatBool(o.Selection.Sieve.Decodes())},
		"bookmarks": {"true"},
	}
	if o.Since != "" {
		parameters.Set("since", o.Since)
	}
	changes := make(chan printer.Object, source.ChunkSize)
	failed := make(chan error, len(views))
	var following sync.WaitGroup
	for _, v := range views {
		following.Go(func() {
			last, err := o.follow(process, v, parameters, changes)
			if last != "" && len(views) == 1 && !o.Initial && !o.Plain && !errors.Is(err, cmdutil.ErrInterrupted) {
				err = fmt.Errorf("%w; --since-rv %s goes on from there", err, last)
			}
			cancel() // the first scope that ends also ends the others
			failed <- err
		})
	}
	go func() {
		following.Wait()
		close(changes)
	}()
	err = o.print(process, changes, !slices.ContainsFunc(views, func(v watched) bool {
		return v.Info.Scope.Resource != views[0].Info.Scope.Resource
	}))
	cancel()
	for range changes { // until all goroutines have ended
		continue
	}
	return cmp.Or(err, cmdutil.FirstCause(failed), o.Selection.Explain(nil))
}

// ofCluster returns the scopes of the cluster that the flags name, or says that there are
// several.
func (o *Changes) ofCluster(path string, views []watched) ([]watched, error) {
	infos := make([]store.Info, len(views))
	for i, v := range views {
		infos[i] = v.Info
	}
	if o.Selection.Database.Cluster == "" {
		if o.Since == "" { // else it is an error
			source.NoteClusters(o.Selection.Env, path, infos)
		}
		o.clusters = len(source.Clusters(infos)) > 1
		return views, nil
	}
	cluster, err := source.FindCluster(path, infos, o.Selection.Database.Cluster)
	return slices.DeleteFunc(views, func(v watched) bool { return source.ClusterOf(v.Info) != cluster }), err
}

// haveOneHistory checks that the resource versions of all scopes can be compared. A
// resource version of one collection does not order the changes of another.
func haveOneHistory(views []watched) error {
	var names []string
	for _, v := range views {
		name := v.Info.Scope.Resource
		if v.Info.Scope.Cluster != "" {
			name += " of cluster " + v.Info.Scope.Cluster
		}
		names = append(names, name)
	}
	if names = slices.Compact(slices.Sorted(slices.Values(names))); len(names) > 1 {
		return fmt.Errorf("want one resource of one cluster, since resource versions of several do not compare: %s", cmdutil.Some(names))
	}
	return nil
}

// watched is one followed scope.
type watched struct {
	*source.View
	names []string // empty means all
}

// followedBy returns the wanted scopes that the process' informers hold.
func followedBy(process *source.Process, wanted []resources.Wanted, namespace string) ([]watched, error) {
	body, err := process.Ask("/v1/scopes", nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	var scopes []informer.ScopeStatus
	if err := json.NewDecoder(body).Decode(&scopes); err != nil {
		return nil, process.Failed(err)
	}
	var held []store.Info
	var names []string
	for _, s := range scopes {
		scope := store.Scope{
			Cluster: s.Cluster, Resource: s.Resource, Kind: schema.FromAPIVersionAndKind(s.APIVersion, s.Kind),
			Namespace: s.Namespace, LabelSelector: s.LabelSelector, FieldSelector: s.FieldSelector,
		}
		if s.Resource == "" {
			continue // the informer does not know its scope yet
		}
		scope.Form, _ = source.ParseForm(s.Form)
		names = append(names, s.Resource)
		// Two informers may hold the same scope.
		if !slices.ContainsFunc(held, func(i store.Info) bool { return i.ID == s.ID }) {
			held = append(held, store.Info{ID: s.ID, Scope: scope})
		}
	}
	if len(held) == 0 {
		return nil, fmt.Errorf("the process of %s follows nothing", process.Path)
	}
	var views []watched
	for _, want := range wanted {
		meant := named(process, held, want.Resource)
		for _, info := range meant {
			i := slices.IndexFunc(views, func(w watched) bool { return w.Info.ID == info.ID })
			switch {
			case i < 0:
				views = append(views, watched{&source.View{Info: info}, want.Names})
			case len(want.Names) == 0:
				views[i].names = nil
			case len(views[i].names) > 0:
				views[i].names = slices.Concat(views[i].names, want.Names)
			}
		}
		follows := "the process of " + process.Path + " follows"
		if err := resources.OfNamespace(namespace, follows, meant); err != nil {
			return nil, err
		}
		if len(meant) == 0 {
			return nil, resources.Unknown(want.Resource, follows,
				slices.Compact(slices.Sorted(slices.Values(names))), "informctl status")
		}
	}
	return views, nil
}

// named returns the held scopes of the resource that a user named, all for "". The names
// of custom resources and the categories are those that the file of the process has.
func named(process *source.Process, held []store.Info, name string) []store.Info {
	if name == "" {
		return held
	}
	if meant := resources.Meant(held, name); len(meant) > 0 {
		return meant
	}
	db, err := source.OpenProcess(process.Ctx, process.Path, false)
	if err != nil {
		return nil // the name is unknown then
	}
	defer func() { _ = db.Close() }()
	found, err := db.Find(name)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(held), func(i store.Info) bool {
		return !slices.ContainsFunc(found, func(f store.Info) bool { return f.Scope.Resource == i.Scope.Resource })
	})
}

// follow sends the changes of a scope to changes until the context or the process ends.
// It returns the last resource version from which a client can continue.
func (o *Changes) follow(process *source.Process, v watched, parameters url.Values, changes chan<- printer.Object) (last string, err error) {
	parameters = maps.Clone(parameters)
	parameters.Set("scope", v.Info.ID)
	body, err := process.Ask("/v1/changes", parameters)
	if err != nil {
		return "", err
	}
	defer func() { _ = body.Close() }()
	for dec := json.NewDecoder(body); ; {
		var line struct {
			wire.ChangeLine
			wire.Failure
		}
		switch err := dec.Decode(&line); {
		case process.Ctx.Err() != nil:
			return last, cmdutil.ErrInterrupted
		case err != nil:
			return last, cutOff(process)
		case errors.Is(&line.Failure, store.ErrClosed):
			return last, hasEnded(process)
		case line.Text != "":
			return last, fmt.Errorf("the process of %s ended the watch: %w", process.Path, &line.Failure)
		}
		event, ok, err := o.selected(v, line.ChangeLine)
		if err != nil {
			return last, err
		}
		rv := last // the object is not read any more once it is sent
		if m, err := meta.Accessor(event.Object); err == nil && !line.Listed {
			rv = m.GetResourceVersion()
		}
		if ok {
			u := event.Object.(*unstructured.Unstructured) //nolint:forcetypeassert // selected has made it
			change := printer.Object{Item: source.Item{View: v.View, Namespace: u.GetNamespace(), Name: u.GetName()}, Object: u}
			if !o.Plain {
				change.Event = string(event.Type)
			}
			select {
			case changes <- change:
			case <-process.Ctx.Done():
				return last, cmdutil.ErrInterrupted
			}
		}
		last = rv
	}
}

// selected returns a change as a client of the selection receives it.
func (o *Changes) selected(v watched, line wire.ChangeLine) (e informer.Event, ok bool, err error) {
	if e.Object, err = sentObject(line.Object); err == nil && line.Old != nil {
		e.Old, err = sentObject(line.Old)
	}
	if err != nil {
		return e, false, fmt.Errorf("%s: %w", v.Info.Scope, err)
	}
	switch e.Type = informer.EventType(line.Type); e.Type {
	case informer.EventType(watch.Bookmark):
		return e, false, nil
	case informer.Initial:
		e.Type = informer.Added
	}
	e.Inside = line.Inside
	m, err := meta.Accessor(e.Object)
	if err != nil || len(v.names) > 0 && !slices.Contains(v.names, m.GetName()) ||
		slices.ContainsFunc(o.Selection.Filter.Fields, func(r selection.Requirement) bool { return r.Excludes(m.GetNamespace(), m.GetName()) }) {
		return e, false, err
	}
	i := source.Item{View: v.View, Namespace: m.GetNamespace(), Name: m.GetName()}
	e, ok, err = e.Selected(func(obj runtime.Object) (bool, error) {
		return o.Selection.Sieve.Passes(i, o.asQueried(v.Info.Scope, obj), time.Time{})
	})
	if err != nil {
		err = i.Wrap(err)
	}
	return e, ok, err
}

// asQueried returns an object in the form in which query tests it: a Go type has the zero
// numbers and booleans that JSON leaves out. Redacted Secrets have no Go type.
func (o *Changes) asQueried(scope store.Scope, obj runtime.Object) runtime.Object {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || scope.Form != store.Typed || !o.Selection.Sieve.Decodes() || scope.IsSecret() && !o.Selection.ShowSecrets {
		return obj
	}
	typed, err := scheme.Scheme.New(scope.Kind)
	if err != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed) != nil {
		return obj
	}
	return typed
}

// sentObject decodes an object. Its error does not quote it.
func sentObject(b []byte) (*unstructured.Unstructured, error) {
	content := map[string]any{}
	if err := utiljson.Unmarshal(b, &content); err != nil {
		return nil, errors.New("a change cannot be read")
	}
	return &unstructured.Unstructured{Object: content}, nil
}

func hasEnded(process *source.Process) error {
	return fmt.Errorf("the process of %s has ended", process.Path)
}

// cutOff returns the reason why the stream of changes ended without an error.
func cutOff(process *source.Process) error {
	body, err := process.Ask("/v1/scopes", nil)
	if err != nil {
		return hasEnded(process)
	}
	_ = body.Close()
	return fmt.Errorf("the process of %s ended the watch: changes were taken more slowly than they came", process.Path)
}

// print prints changes until the channel is closed. It flushes the output when no change
// is waiting.
func (o *Changes) print(process *source.Process, changes <-chan printer.Object, oneResource bool) error {
	w := bufio.NewWriter(cmdutil.StandardOutput{Writer: o.Selection.Env.Streams.Out})
	p := o.printer(process, oneResource)
	if err := p.Begin(w); err != nil {
		return err
	}
	for {
		if len(changes) == 0 {
			if err := w.Flush(); err != nil {
				return fmt.Errorf("write output: %w", err)
			}
		}
		change, more := <-changes
		if !more {
			if err := w.Flush(); err != nil {
				return fmt.Errorf("write output: %w", err)
			}
			return nil
		}
		if u, ok := change.Object.(*unstructured.Unstructured); ok && !o.Selection.Format.ShowsManagedFields() {
			u.SetManagedFields(nil)
		}
		rendered, err := p.Render(change)
		if errors.As(err, new(printer.Misfit)) {
			o.Selection.Env.Note("%s", change.Wrap(err))
			continue
		}
		if err == nil {
			err = p.Emit(w, []printer.Piece{rendered})
		}
		if err == nil {
			err = p.End(w)
		}
		if err != nil {
			return change.Wrap(err)
		}
	}
}

func (o *Changes) printer(process *source.Process, oneResource bool) printer.Printer {
	if p := o.Selection.Format.OneByOne(!o.Plain); p != nil {
		return p
	}
	return &changeTable{o: o, oneResource: oneResource, process: process}
}
