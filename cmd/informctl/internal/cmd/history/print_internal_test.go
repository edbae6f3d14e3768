package history

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

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
