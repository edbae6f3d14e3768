package resources

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/informctl/informctl/store"
)

// Name names the resource of scopes, or says how many they are of.
func Name(scopes []store.Scope) string {
	names := sets.New[string]()
	for _, s := range scopes {
		names.Insert(s.Resource)
	}
	if names.Len() == 1 {
		return scopes[0].Resource
	}
	return fmt.Sprintf("%d resources", names.Len())
}
