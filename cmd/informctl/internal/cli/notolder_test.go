package cli_test

import (
	"strings"
	"testing"
	"time"
)

// TestNotOlderThan checks that a read waits for a resource version, of a process and of a
// file that nothing follows.
func TestNotOlderThan(t *testing.T) {
	t.Parallel() // it waits for 5 seconds
	first := pod("a", "p", "web")
	p := runProcess(t, first)
	read := func(rv string) said {
		t.Helper()
		return say(t.Context(), "query", "pods", "p", "-n", "a", "--not-older-than", rv, "-o", "jsonpath={.metadata.resourceVersion}", "--db", p.path)
	}
	for range 5 {
		rv, err := p.server.Update(first.DeepCopy())
		if err != nil {
			t.Fatal(err)
		}
		got := read(rv)
		for began := time.Now(); strings.Contains(got.Err, "ahead of what is stored") && time.Since(began) < time.Minute; {
			got = read(rv) // it waits for 5 seconds only, whatever else runs
		}
		if got.Code != 0 || got.Out != rv {
			t.Errorf("asked for %s: %q, exit code %d, %s", rv, got.Out, got.Code, got.Err)
		}
	}
	last := p.server.RV()
	if got := say(t.Context(), "dump", "pods", "--not-older-than", "99999", "--db", p.path); got.Code != 1 || !strings.Contains(got.Err, "99999 is ahead of what is stored") {
		t.Errorf("ahead: exit code %d, %s", got.Code, got.Err)
	}
	for _, args := range [][]string{
		{"--not-older-than", "0"},
		{"--not-older-than", "x"},
		{"--not-older-than", ""},
		{"--not-older-than", last, "--at", "1m"},
		{"--not-older-than", last, "--watch"},
	} {
		if got := say(t.Context(), append([]string{"query", "pods", "--db", p.path}, args...)...); got.Code != 64 {
			t.Errorf("%q: exit code %d, %s", args, got.Code, got.Err)
		}
	}
	p.stop()
	if got := read(last); got.Code != 0 || got.Out != last {
		t.Errorf("of the file: %q, exit code %d, %s", got.Out, got.Code, got.Err)
	}
	if got := read("99999"); got.Code != 1 || !strings.Contains(got.Err, "nothing follows pods") {
		t.Errorf("of the file, ahead: exit code %d, %s", got.Code, got.Err)
	}
}
