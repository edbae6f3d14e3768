package cli

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/store"
)

// definition returns the definition of a custom resource, nil if it is not held.
func (d *database) definition(resource string) (*unstructured.Unstructured, error) {
	found, err := d.readDefinitions(func(r reader) ([]string, error) {
		return r.among([]string{resource}, labels.Everything())
	})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

// resourcesNamed returns the custom resources that have a name as a short name, a
// singular name or a category, as the definitions that are held say.
func (d *database) resourcesNamed(name string) ([]string, error) {
	crds, err := d.readDefinitions(reader.all)
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
func (d *database) readDefinitions(choose func(reader) ([]string, error)) (found []*unstructured.Unstructured, err error) {
	var infos []store.Info
	for _, info := range d.scopes {
		if info.Scope.Resource == resources.Definitions && info.Scope.Form != store.Metadata {
			infos = append(infos, info)
		}
	}
	opened, err := d.then(store.Place{}).open(infos, whole)
	if err != nil {
		return nil, err
	}
	for _, v := range opened.views {
		keys, err := choose(v)
		if err != nil {
			return nil, fmt.Errorf("read the definitions of custom resources: %w", err)
		}
		objects, err := v.fetch(keys, record)
		if err != nil {
			return nil, fmt.Errorf("read the definitions of custom resources: %w", err)
		}
		for _, e := range objects {
			if e.decode == nil {
				continue // deleted meanwhile
			}
			obj, err := e.decode()
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
