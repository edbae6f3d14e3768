package diff

import (
	"slices"

	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/store"
)

// leftOut returns the scopes that are left out since their first list is not complete,
// of two files one of each resource and namespace, unless another scope of the file holds
// its objects: where nothing else differs, "nothing differs" would be wrong.
func (o *options) leftOut(dbs ...*source.Database) (left []store.Info, err error) {
	for _, db := range dbs {
		for _, want := range o.selection.Wanted {
			infos, err := db.Find(want.Resource)
			if err != nil {
				return nil, err
			}
			for _, info := range infos {
				isTwo := len(dbs) > 1
				isTold := slices.ContainsFunc(left, func(told store.Info) bool {
					return told.ID == info.ID || isTwo && told.Scope.Resource == info.Scope.Resource && told.Scope.Namespace == info.Scope.Namespace
				})
				isLeft := !info.Complete && (!isTwo || !isCovered(db, info.Scope))
				if isLeft && !isTold && o.selection.Filter.IsWithin(info.Scope.Namespace) {
					left = append(left, info)
				}
			}
		}
	}
	return left, nil
}

// isCovered reports whether a file holds, in another scope, all objects of one.
func isCovered(db *source.Database, s store.Scope) bool {
	holds := func(all, own string) bool { return all == "" || all == own }
	return slices.ContainsFunc(db.Scopes, func(i store.Info) bool {
		return i.Complete && i.Scope.Resource == s.Resource && i.Scope.Cluster == s.Cluster && holds(i.Scope.Namespace, s.Namespace) &&
			holds(i.Scope.LabelSelector, s.LabelSelector) && holds(i.Scope.FieldSelector, s.FieldSelector)
	})
}

// skip skips what a file holds whole of resources that are left out, since the other file
// does not: all of their objects would differ.
func (o *options) skip(db *source.Database, left []store.Info) {
	o.selection.Skipped = map[string]bool{}
	for _, info := range db.Scopes {
		isLeft := slices.ContainsFunc(left, func(l store.Info) bool {
			within := l.Scope.Namespace == "" || info.Scope.Namespace == "" || l.Scope.Namespace == info.Scope.Namespace
			return l.Scope.Resource == info.Scope.Resource && within
		})
		if isLeft && info.Complete {
			o.selection.Skipped[info.ID] = true
		}
	}
}
