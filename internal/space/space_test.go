package space

import (
	"errors"
	"io"
	"testing"
)

// TestCheck checks how much of a volume stays free.
func TestCheck(t *testing.T) {
	const mib = 1 << 20
	for name, test := range map[string]struct {
		n, free, total int64
		short          bool
	}{
		"fits":              {n: 10 * mib, free: 20 * mib, total: 100 * mib},
		"would leave less":  {n: 10*mib + 1, free: 20 * mib, total: 100 * mib, short: true},
		"full":              {n: 0, free: 0, total: 100 * mib, short: true},
		"small volume":      {n: 4 * mib, free: 8 * mib, total: 16 * mib},
		"small volume full": {n: 4*mib + 1, free: 8 * mib, total: 16 * mib, short: true},
		"large volume":      {n: 744 * mib, free: 1000 * mib, total: 1 << 40},
		"large volume full": {n: 745 * mib, free: 1000 * mib, total: 1 << 40, short: true},
	} {
		if err := check("dir", test.n, test.free, test.total); errors.Is(err, ErrShort) != test.short {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	if err := Check(t.TempDir(), 1<<62); !errors.Is(err, ErrShort) {
		t.Errorf("more than any volume has: error is %v", err)
	}
	if err := Check("/none", 1<<62); err != nil {
		t.Errorf("of a volume that does not answer: error is %v", err)
	}
	w := &Writer{Writer: io.Discard, Path: "/none"}
	if n, err := w.Write([]byte("abc")); n != 3 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}
