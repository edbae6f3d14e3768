package resources

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/store"
)

// UnknownError is the error of a resource that is not there.
type UnknownError struct{ text string }

func (e *UnknownError) Error() string { return e.text }

// Unknown returns the error for a resource that is not among names, which are sorted.
// where says where they are, as "FILE holds", and all what prints all of them.
func Unknown(resource, where string, names []string, all string) error {
	return &UnknownError{unknown(resource, where, names, all)}
}

// IsSecrets reports whether a name means Secrets.
func IsSecrets(name string) bool {
	return Is(store.Scope{Resource: "secrets", Kind: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}}, name)
}

// OfNamespace returns an UnknownError if scopes are of other namespaces only; "" is all.
// where says where they are, as for Unknown.
func OfNamespace(namespace, where string, scopes []store.Info) error {
	if namespace == "" || len(scopes) == 0 {
		return nil
	}
	var of []string
	for _, s := range scopes {
		if is := s.Scope.Namespace; is == "" || is == namespace {
			return nil
		}
		of = append(of, s.Scope.String())
	}
	slices.Sort(of)
	return &UnknownError{fmt.Sprintf("%s nothing of namespace %s, but %s", where, namespace, cmdutil.Some(slices.Compact(of)))}
}

func unknown(resource, where string, names []string, all string) string {
	if IsSecrets(resource) {
		return where + " no Secrets, which are written only with a key: informctl run secrets --key-file FILE"
	}
	text, whole := cmdutil.Listed(resource, names)
	if !whole {
		text += "; " + all + " prints all"
	}
	return fmt.Sprintf("unknown resource %q; %s %s", resource, where, text)
}
