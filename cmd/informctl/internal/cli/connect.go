package cli

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/informctl/informctl/cmd/informctl/internal/cluster"
)

// excluded returns the resources that a user excludes. One that names its group may not
// be there yet.
func excluded(mapper meta.RESTMapper, names []string) (sets.Set[string], error) {
	out := sets.New[string]()
	for _, name := range names {
		m, err := cluster.MappingOf(mapper, name)
		switch {
		case err == nil:
			out.Insert(cluster.NameOf(m))
		case !meta.IsNoMatchError(err):
			return nil, err
		case strings.Contains(name, "."):
			out.Insert(name)
		default:
			return nil, fmt.Errorf("--exclude: the server has no resource %q; one that comes later is named with its group", name)
		}
	}
	return out, nil
}
