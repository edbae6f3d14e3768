package bolt

import "github.com/informctl/informctl/store"

// SetRelistLimit sets how many bytes a relist keeps in memory.
func SetRelistLimit(r store.Relist, limit int) { r.(*relist).limit = limit }
