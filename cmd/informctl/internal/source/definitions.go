package source

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/store"
)

// Definition returns the definition of a custom resource, nil if it is not held.
func (d *Database) Definition(resource string) (*unstructured.Unstructured, error) {
	found, err := d.readDefinitions(func(v *View) ([]string, error) {
		return v.Among([]string{resource}, labels.Everything())
	})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

// resourcesNamed returns the custom resources that have a name as a short name, a
// singular name or a category, as the definitions that are held say.
func (d *Database) resourcesNamed(name string) ([]string, error) {
	crds, err := d.readDefinitions(func(v *View) ([]string, error) { return v.Keys(store.Query{}) })
	if err != nil {
		return nil, err
	}
	var resources []string
	for _, crd := range crds {
		names, _, _ := unstructured.NestedMap(crd.Object, "spec", "names")
		all := []any{names["singular"]}
		for _, field := range []string{"shortNames", "categories"} {
			some, _ := names[field].([]any)
			all = append(all, some...)
		}
		if slices.Contains(all, any(strings.ToLower(name))) {
			resources = append(resources, crd.GetName())
		}
	}
	return resources, nil
}

// readDefinitions returns the definitions with the keys that choose returns, as they are
// now, whatever the moment that is read otherwise: columns and names are not in the past.
func (d *Database) readDefinitions(choose func(*View) ([]string, error)) (found []*unstructured.Unstructured, err error) {
	var infos []store.Info
	for _, info := range d.Scopes {
		if info.Scope.Resource == resources.Definitions && info.Scope.Form != store.Metadata {
			infos = append(infos, info)
		}
	}
	opened, err := d.At(store.Place{}).Open(infos, WholeObjects)
	if err != nil {
		return nil, err
	}
	for _, v := range opened.Views {
		keys, err := choose(v)
		if err != nil {
			return nil, fmt.Errorf("read the definitions of custom resources: %w", err)
		}
		objects, err := v.Fetch(keys, Record)
		if err != nil {
			return nil, fmt.Errorf("read the definitions of custom resources: %w", err)
		}
		for _, e := range objects {
			if IsDeleted(e) {
				continue // deleted meanwhile
			}
			obj, err := v.Reader.Decode(e)
			if err != nil {
				return nil, fmt.Errorf("read the definitions of custom resources: %w", err)
			}
			if crd, ok := obj.(*unstructured.Unstructured); ok {
				found = append(found, crd)
			}
		}
	}
	return found, nil
}
