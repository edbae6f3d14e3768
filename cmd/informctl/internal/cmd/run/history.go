package run

import (
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

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
func parseHistory(text string) (h history, err error) {
	switch text {
	case "":
		return h, nil
	case "off":
		return history{each: store.History{Bytes: -1}}, nil
	}
	age, bytes, hasBytes := strings.Cut(text, ",")
	if h.each.Age, err = cmdutil.ParseSince(age); err != nil {
		return h, fmt.Errorf("%q: write AGE, as 24h or 7d, AGE,BYTES, as 24h,1GiB, or off", text)
	}
	if !hasBytes {
		return h, nil
	}
	q, err := resource.ParseQuantity(strings.TrimSuffix(bytes, "B"))
	if h.all = q.Value(); err != nil || h.all < 1<<20 {
		return h, fmt.Errorf("%q: %q is no number of bytes from 1MiB on; write 500MiB or 1GiB", text, bytes)
	}
	h.each.Bytes = math.MaxInt64
	return h, nil
}
