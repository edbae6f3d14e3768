package run

import (
	"math"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/store"
)

// history is what --history says.
type history struct {
	each store.History // of each resource
	all  int64         // bytes of all resources; 0: the default
}

// parseHistory parses AGE, AGE,BYTES or off. With BYTES, which all resources share, a
// resource has no bound of its own.
func parseHistory(text string) (history, error) {
	r, err := cmdutil.ParseRetention(text)
	switch {
	case err != nil || r == cmdutil.Retention{}:
		return history{}, err
	case r.Off:
		return history{each: store.History{Bytes: -1}}, nil
	case r.Bytes == 0:
		return history{each: store.History{Age: r.Age}}, nil
	}
	return history{each: store.History{Age: r.Age, Bytes: math.MaxInt64}, all: r.Bytes}, nil
}
