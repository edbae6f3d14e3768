package source

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/store"
)

// Definition returns the definition of the custom resource of a scope, nil if none is
// known: that of the scope's cluster, else that of another one. One that was deleted is
// as the log has it.
func (d *Database) Definition(scope store.Scope) (*unstructured.Unstructured, error) {
	own, others := *d, *d
	isOwn := func(info store.Info) bool { return info.Scope.Cluster == scope.Cluster }
	others.Scopes = slices.DeleteFunc(slices.Clone(d.Scopes), isOwn)
	own.Scopes = slices.DeleteFunc(slices.Clone(d.Scopes), func(info store.Info) bool { return !isOwn(info) })
	for _, db := range []*Database{&own, &others} {
		found, err := db.readDefinitions(func(v *View) ([]string, error) {
			return v.Among([]string{scope.Resource}, labels.Everything())
		})
		if err == nil && len(found) == 0 {
			found, err = db.deletedDefinitions(func(crd *unstructured.Unstructured) bool { return crd.GetName() == scope.Resource })
		}
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			return found[0], nil
		}
	}
	return nil, nil
}

// resourcesNamed returns the custom resources that have a name as a short name, a
// singular name or a category, as the definitions say that are held or, where none does,
// were deleted.
func (d *Database) resourcesNamed(name string) ([]string, error) {
	crds, err := d.readDefinitions(func(v *View) ([]string, error) { return v.Keys(store.Query{}) })
	if err != nil {
		return nil, err
	}
	named := slices.DeleteFunc(crds, func(crd *unstructured.Unstructured) bool { return !hasName(crd, name) })
	if len(named) == 0 {
		named, err = d.deletedDefinitions(func(crd *unstructured.Unstructured) bool { return hasName(crd, name) })
	}
	var resources []string
	for _, crd := range named {
		resources = append(resources, crd.GetName())
	}
	return resources, err
}

// hasName reports whether a name is a short name, the singular name or a category of a
// custom resource.
func hasName(crd *unstructured.Unstructured, name string) bool {
	names, _, _ := unstructured.NestedMap(crd.Object, "spec", "names")
	all := []any{names["singular"]}
	for _, field := range []string{"shortNames", "categories"} {
		some, _ := names[field].([]any)
		all = append(all, some...)
	}
	return slices.Contains(all, any(strings.ToLower(name)))
}

// readDefinitions returns the definitions with the keys that choose returns, as they are
// now, whatever the moment that is read otherwise: columns and names are not in the past.
func (d *Database) readDefinitions(choose func(*View) ([]string, error)) (found []*unstructured.Unstructured, err error) {
	err = d.eachOfDefinitions(func(v *View) error {
		keys, err := choose(v)
		if err != nil {
			return err
		}
		objects, err := v.Fetch(keys, Record)
		if err != nil {
			return err
		}
		for _, e := range objects {
			if IsDeleted(e) {
				continue // deleted meanwhile
			}
			if found, err = appendDefinition(found, v, e); err != nil {
				return err
			}
		}
		return nil
	})
	return found, err
}

// deletedDefinitions returns the definitions that were deleted, as they were last, of
// those for which choose returns true.
func (d *Database) deletedDefinitions(choose func(*unstructured.Unstructured) bool) (found []*unstructured.Unstructured, err error) {
	err = d.eachOfDefinitions(func(v *View) error {
		log, err := v.History()
		if err != nil {
			return err
		}
		last := map[string]store.Entry{}
		for e, err := range v.Changes(context.Background(), log, store.Place{}, time.Time{}, store.LogFilter{}, false) {
			switch {
			case errors.Is(err, store.ErrTrimmed) || errors.Is(err, store.ErrLineage) || errors.Is(err, store.ErrCorrupt):
				return nil // none is known: the columns are not worth an error
			case err != nil:
				return err
			case e.New != nil:
				delete(last, e.Key)
			case e.Old != nil && e.Old.IsKnown():
				last[e.Key] = e.Old.Entry
			}
		}
		for _, key := range slices.Sorted(maps.Keys(last)) {
			if found, err = appendDefinition(found, v, last[key]); err != nil {
				return err
			}
		}
		return nil
	})
	return slices.DeleteFunc(found, func(crd *unstructured.Unstructured) bool { return !choose(crd) }), err
}

func appendDefinition(found []*unstructured.Unstructured, v *View, e store.Entry) ([]*unstructured.Unstructured, error) {
	obj, err := v.Reader.Decode(e)
	if crd, ok := obj.(*unstructured.Unstructured); ok && err == nil {
		found = append(found, crd)
	}
	return found, err
}

// eachOfDefinitions calls read for the views of the definitions that are held.
func (d *Database) eachOfDefinitions(read func(*View) error) error {
	var infos []store.Info
	for _, info := range d.Scopes {
		if info.Scope.Resource == resources.Definitions && info.Scope.Form != store.Metadata {
			infos = append(infos, info)
		}
	}
	opened, err := d.At(store.Place{}).Open(infos, WholeObjects)
	if err != nil {
		return err
	}
	for _, v := range opened.Views {
		if err := read(v); err != nil {
			return fmt.Errorf("read the definitions of custom resources: %w", err)
		}
	}
	return nil
}
