package history

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/objectdiff"
	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
)

// TestKept checks that a state takes less memory until it is printed, and that one that
// is not known stays so.
func TestKept(t *testing.T) {
	states, err := codec.NewCompressor(nil)
	if err != nil {
		t.Fatal(err)
	}
	o := &options{states: states}
	sent := &store.Version{Entry: store.Entry{Key: "a/web", Raw: bytes.Repeat([]byte("status of a container, "), 500)}}
	kept := o.kept(sent)
	if size := len(kept.Entry.Raw); size > len(sent.Entry.Raw)/10 {
		t.Errorf("%d bytes are kept of %d", size, len(sent.Entry.Raw))
	}
	got, err := o.unpacked(kept.Entry)
	if diff := cmp.Diff(sent.Entry, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if kept := o.kept(&store.Version{}); kept.IsKnown() {
		t.Errorf("got %+v", kept)
	}
	if o.kept(nil) != nil {
		t.Error("an object is there that was not")
	}
}

// TestWhenTwice checks that a time that a clock has shown twice, as when summer time
// ends, is printed so that it means one of the two.
func TestWhenTwice(t *testing.T) {
	local := time.Local
	defer func() { time.Local = local }()
	for _, test := range []struct{ zone, first, second, before string }{
		{"Europe/Berlin", "2026-10-25T00:30:10Z", "2026-10-25T01:30:10Z", "2026-10-24T23:30:10Z"},
		{"Australia/Lord_Howe", "2026-04-04T14:45:10Z", "2026-04-04T15:15:10Z", "2026-04-04T14:15:10Z"},
	} {
		var err error
		if time.Local, err = time.LoadLocation(test.zone); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{test.first, test.second, test.before} {
			at, err := time.Parse(time.RFC3339, text)
			if err != nil {
				t.Fatal(err)
			}
			for _, now := range []time.Time{at.Add(2 * time.Hour), at.AddDate(0, 1, 0)} {
				printed := (&loggedChange{Line: objectdiff.Line{Time: at}}).when(now)
				if got, err := cmdutil.ParseMoment(printed, now.Local()); err != nil || !got.Equal(at) {
					t.Errorf("%s in %s is printed as %s, which means %s, %v", text, test.zone, printed, got.UTC(), err)
				}
				if isShort := len(printed) <= len(time.DateTime); isShort != (text == test.before) {
					t.Errorf("%s in %s is printed as %s", text, test.zone, printed)
				}
			}
		}
	}
}
