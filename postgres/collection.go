package postgres

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/postgres/internal/raw"
	"github.com/informctl/informctl/store"
)

// Collection is what a publisher lists and watches.
type Collection struct {
	Scope         store.Scope // its Form does not matter
	ListerWatcher cache.ListerWatcher
	Example       runtime.Object // of the type that ListerWatcher returns
}

// NewCollection returns the Collection of a scope whose objects are published as the API
// server of cfg encodes them, with the fields that this program does not know.
func NewCollection(cfg *rest.Config, s store.Scope) (Collection, error) {
	s, err := identity(s)
	if err != nil {
		return Collection{}, err
	}
	if s.Resource == "" || s.Kind.Empty() {
		return Collection{}, errors.New("a collection needs the resource and the kind of its scope")
	}
	resource, _, _ := strings.Cut(s.Resource, ".")
	client, err := raw.NewClient(cfg, s.Kind, resource, s.Namespace, func(opts *metav1.ListOptions) {
		opts.LabelSelector, opts.FieldSelector = s.LabelSelector, s.FieldSelector
	})
	if err != nil {
		return Collection{}, fmt.Errorf("publish %s: %w", s.Resource, err)
	}
	return Collection{Scope: s, ListerWatcher: client, Example: &raw.Object{}}, nil
}
