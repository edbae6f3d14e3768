package resume

import "sync"

// owed counts, by the ID of a scope, the consumers of the process that wait for their
// election, have a place there and have no handler yet.
var owed struct {
	sync.Mutex
	scopes map[string]int
}

// Owe keeps what has departed in a scope until end is called, whatever other handlers
// have received. end may be called again.
func Owe(id string) (end func()) {
	owed.Lock()
	defer owed.Unlock()
	if owed.scopes == nil {
		owed.scopes = map[string]int{}
	}
	owed.scopes[id]++
	return sync.OnceFunc(func() {
		owed.Lock()
		defer owed.Unlock()
		if owed.scopes[id]--; owed.scopes[id] == 0 {
			delete(owed.scopes, id)
		}
	})
}

// IsOwed reports whether Owe keeps what has departed in a scope.
func IsOwed(id string) bool {
	owed.Lock()
	defer owed.Unlock()
	return owed.scopes[id] > 0
}
