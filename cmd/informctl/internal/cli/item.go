package cli

import "github.com/informctl/informctl/store"

// typed returns the number of items that are decoded with a Go type.
func typed(items []item) (n int) {
	for _, i := range items {
		if i.view.info.Scope.Form == store.Typed {
			n++
		}
	}
	return n
}
