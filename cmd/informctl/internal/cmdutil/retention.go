package cmdutil

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Retention is how much is kept of what has changed.
type Retention struct {
	Off   bool
	Age   time.Duration // 0: the default
	Bytes int64         // 0: the default
}

// Retentions are what ParseRetention parses, for messages.
const Retentions = "AGE, as 24h or 7d, AGE,BYTES, as 24h,1GiB, or off"

// ParseRetention parses AGE, AGE,BYTES or off; "" is the default.
func ParseRetention(text string) (r Retention, err error) {
	switch text {
	case "":
		return r, nil
	case "off":
		return Retention{Off: true}, nil
	}
	age, bytes, hasBytes := strings.Cut(text, ",")
	if r.Age, err = ParseSince(age); err != nil {
		return r, fmt.Errorf("%q: write %s", text, Retentions)
	}
	if !hasBytes {
		return r, nil
	}
	q, err := resource.ParseQuantity(strings.TrimSuffix(bytes, "B"))
	if r.Bytes = q.Value(); err != nil || r.Bytes < 1<<20 {
		return r, fmt.Errorf("%q: %q is no number of bytes from 1MiB on; write 500MiB or 1GiB", text, bytes)
	}
	return r, nil
}
