package graveyard_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/graveyard"
	"github.com/informctl/informctl/store/bolt/internal/objcodec"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/view"
)

// TestReader reads what is not in the file: deletions that are not written yet, and what
// the former content had.
func TestReader(t *testing.T) {
	state := func(content string) *overlay.Entry {
		return &overlay.Entry{Name: "ns/" + content, Head: &record.Header{}, Payload: record.Packed{Bytes: []byte(content)}}
	}
	over := overlay.NewView()
	for number, name := range map[uint64]string{7: "ns/c", 3: "ns/a", 0: "ns/alive"} {
		e := &overlay.Entry{Key: name, Name: name, Departs: number}
		switch number {
		case 0:
			e.Head = &record.Header{}
		case 3:
			e.Before = state("before-a")
		case 7:
			e.Last = record.Packed{Bytes: []byte("last-c")}
		}
		over.Put(e)
	}
	r := graveyard.Reader{
		Content: &view.Snapshot{Codec: &objcodec.Codec{}, Overlay: over}, Log: &changelog.Reader{},
		Gone: []*overlay.Entry{{Key: "ns/b", Name: "ns/b", Departs: 5, Before: state("former-b")}},
	}
	payload := func(raw []byte) string {
		if raw == nil {
			return ""
		}
		_, _, b, err := record.ParseRaw(raw)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	all := []string{"3 before=before-a last=", "5 before=former-b last=", "7 before= last=last-c"}
	for _, tc := range []struct {
		after uint64
		limit int
		want  []string
	}{{0, 10, all}, {3, 10, all[1:]}, {0, 2, all[:2]}, {7, 10, nil}, {0, 0, nil}} {
		departed, err := r.Read(&graveyard.Hint{}, tc.after, tc.limit)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range departed {
			got = append(got, fmt.Sprintf("%d before=%s last=%s", d.Number, payload(d.Before.Raw), payload(d.Last.Raw)))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%d after %d: %q, want %q", tc.limit, tc.after, got, tc.want)
		}
	}
}
