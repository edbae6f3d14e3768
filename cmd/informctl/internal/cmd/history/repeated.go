package history

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
)

// Several scopes may log one change of an object: namespaces, selectors, forms. Where one
// has a selector, an update that makes an object match or not is a creation or a deletion
// there. Each change is told once.

// object is what several scopes may tell of.
type object struct{ cluster, resource, namespace, name string }

func (c *loggedChange) object() object {
	return object{c.scope.Info.Scope.Cluster, oneResource(c.Resource), c.Namespace, c.Name}
}

// withoutRepeated removes what another scope has told of a change, too. What tells of an
// update has its resource version: there may be thousands of one object, as of a Lease.
func withoutRepeated(found []*loggedChange) []*loggedChange {
	if !slices.ContainsFunc(found, func(c *loggedChange) bool { return c.scope != found[0].scope }) {
		return found
	}
	type update struct {
		of object
		rv string
	}
	byObject, updates := map[object][]*loggedChange{}, map[update][]*loggedChange{}
	for _, c := range found {
		of := c.object()
		byObject[of] = append(byObject[of], c)
		if c.Change == "updated" {
			updates[update{of, c.ResourceVersion}] = append(updates[update{of, c.ResourceVersion}], c)
		}
	}
	return slices.DeleteFunc(slices.Clone(found), func(c *loggedChange) bool {
		others := byObject[c.object()]
		if c.Change == "updated" {
			others = updates[update{c.object(), c.ResourceVersion}]
		}
		return slices.ContainsFunc(others, func(other *loggedChange) bool {
			return other.scope != c.scope && (other.UID == c.UID || other.UID == "" || c.UID == "") && other.tells(c)
		})
	})
}

// tells reports whether a change of the same object in another scope tells of c, too, and
// is to be preferred.
func (other *loggedChange) tells(c *loggedChange) bool {
	isSame := other.ResourceVersion == c.ResourceVersion
	switch {
	case other.Change == "updated" && c.Change != "updated":
		return isSame || isAfter(c.ResourceVersion, other.from) && isAfter(other.ResourceVersion, c.ResourceVersion)
	case other.Change != c.Change:
		return false
	case c.Change == "deleted" && (c.ResourceVersion == "") != (other.ResourceVersion == ""):
		return c.ResourceVersion == "" // it was found by a list
	case !isSame:
		return false
	}
	if other.Resource != c.Resource {
		return c.Resource == resources.NewerEvents
	}
	if other.scope.IsWhole() != c.scope.IsWhole() {
		return other.scope.IsWhole()
	}
	// The one of the shorter step, then one of them.
	order, err := resourceversion.CompareResourceVersion(other.from, c.from)
	if err != nil {
		order = cmp.Compare(min(len(other.from), 1), min(len(c.from), 1))
	}
	return cmp.Or(order, cmp.Compare(c.scope.Info.ID, other.scope.Info.ID)) > 0
}

// oneResource returns the resource of which an object is told.
func oneResource(name string) string {
	if name == resources.NewerEvents {
		return resources.CoreEvents
	}
	return name
}

// isAfter reports whether a resource version is known to be after another one.
func isAfter(rv, other string) bool {
	order, err := resourceversion.CompareResourceVersion(rv, other)
	return err == nil && order > 0
}

// toldChanges are the last changes that were told. Those of the scopes of one process are
// written within a commit interval of each other.
type toldChanges struct{ now, before map[toldChange]*source.View }

type toldChange struct{ cluster, resource, namespace, name, uid, rv string }

// maxTold is how many changes are remembered, and as many before them.
const maxTold = 1 << 14

// again reports whether another scope has told a change before, and remembers it. What
// one of metadata has told is told again of whole objects.
func (t *toldChanges) again(c *loggedChange) bool {
	key := toldChange{c.scope.Info.Scope.Cluster, oneResource(c.Resource), c.Namespace, c.Name, c.UID, c.ResourceVersion}
	by, known := t.now[key]
	if !known {
		by, known = t.before[key]
	}
	if known && (by.IsWhole() || !c.scope.IsWhole()) {
		return by != c.scope
	}
	if t.now == nil || len(t.now) >= maxTold {
		t.now, t.before = map[toldChange]*source.View{}, t.now
	}
	t.now[key] = c.scope
	return false
}
