// Package served asks an API server what it serves.
package served

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// ConfirmGone asks the server whether it serves a resource in no version at all. A
// version that is not served any more, as after an upgrade, is answered like a resource
// that was deleted, and its objects still exist in the others. The error says that the
// resource is served, or that the server has not said what it serves.
func ConfirmGone(ctx context.Context, client rest.Interface, resource schema.GroupResource) error {
	version, err := inVersion(ctx, client, resource)
	if err != nil {
		return fmt.Errorf("ask in which versions %s is served: %w", resource, err)
	}
	if version != "" {
		return fmt.Errorf("%s is served in %s: its objects are not gone", resource, version)
	}
	return nil
}

// inVersion returns a version in which a resource is served, "" if there is none.
func inVersion(ctx context.Context, client rest.Interface, resource schema.GroupResource) (string, error) {
	get := func(path string, into runtime.Object) error { return client.Get().AbsPath(path).Do(ctx).Into(into) }
	var versions []string
	root := "/apis/"
	if resource.Group == "" {
		root = "/api/"
		core := &metav1.APIVersions{}
		if err := get("/api", core); err != nil {
			return "", err
		}
		versions = core.Versions
	} else {
		groups := &metav1.APIGroupList{}
		if err := get("/apis", groups); err != nil {
			return "", err
		}
		for _, g := range groups.Groups {
			for _, v := range g.Versions {
				if g.Name == resource.Group {
					versions = append(versions, v.GroupVersion)
				}
			}
		}
	}
	for _, version := range versions {
		list := &metav1.APIResourceList{}
		if err := get(root+version, list); err != nil && !apierrors.IsNotFound(err) {
			return "", err
		}
		if slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource.Resource }) {
			return version, nil
		}
	}
	return "", nil
}
