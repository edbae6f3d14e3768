package durable

import (
	"encoding/json"
	"testing"
)

// TestStoredSweep checks that a sweep which has delivered all objects is over for the
// next process, too.
func TestStoredSweep(t *testing.T) {
	for _, after := range []string{"", "ns/name", ended} {
		stored, err := json.Marshal(sweep{From: "ns/m", After: after})
		if err != nil {
			t.Fatal(err)
		}
		var w sweep
		if err := json.Unmarshal(stored, &w); err != nil || w.After != after {
			t.Errorf("a sweep that was at %q is at %q, %v", after, w.After, err)
		}
	}
}
