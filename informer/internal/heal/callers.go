package heal

import "strings"

// module is the prefix of the names of this module's functions.
const module = "github.com/informctl/informctl/"

// callers are the functions, and with a dot at the end the packages, that call
// transforms, index functions, watch error handlers and ListerWatchers.
var callers = []string{
	"reflector.",
	"internal/audit.",
	"internal/endable.",
	"informer/internal/ingest.",
	"informer.(*content).addIndexers",
	"informer.(*opener).open",
	"informer.(*opener).waits",
}

// isCaller reports whether a function of this module, without the module's name, is one
// of callers.
func isCaller(name string) bool {
	for _, caller := range callers {
		if strings.HasPrefix(name, caller) {
			return true
		}
	}
	return false
}
