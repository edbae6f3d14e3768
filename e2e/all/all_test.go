package all_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAll checks what run --all follows, of a user who may not read Secrets, while
// definitions of custom resources come, change and go, and what it lists when it starts
// again after a SIGKILL.
func TestAll(t *testing.T) {
	w := newWorld(t)
	p := w.run()
	p.awaits("caught up", func() bool { return p.hasAll(w.followed) })
	p.awaits("refused", func() bool { return p.has("No permission", "secrets") })
	for resource, because := range map[string]string{
		"componentstatuses": "the server cannot watch it", "bindings": "the server cannot list and watch it",
		"events.events.k8s.io": "the same objects are followed as events",
	} {
		if !slices.Contains(p.lines("Left out"), line{"Left out", resource, because}) {
			t.Errorf("%s: not left out because %s:\n%v", resource, because, p.lines("Left out"))
		}
	}
	if slices.ContainsFunc(p.lines("Listed"), func(l line) bool { return strings.Contains(l.Resource, "/") }) {
		t.Error("a subresource is listed")
	}

	w.define("widgets", "Widget", "v1")
	w.define("gadgets", "Gadget", "v1")
	w.makes("widgets", "Widget", "w-1")
	w.makes("gadgets", "Gadget", "g-1")
	p.awaits("taken up", func() bool { return strings.Contains(w.says("query", "gadgets"), "g-1") })
	p.awaits("taken up", func() bool { return strings.Contains(w.says("query", "widgets"), "SIZE") })
	w.addColumn("widgets")
	p.awaits("printed with a new column", func() bool { return strings.Contains(w.says("query", "widgets"), "COLOR") })
	w.addVersion("widgets", "v2")
	p.awaits("followed in the new version", func() bool {
		out := w.says("query", "widgets", "-o", "json")
		return strings.Contains(out, "/v2") && !strings.Contains(out, "/v1\"")
	})
	w.allowSecrets()
	p.awaits("allowed", func() bool { return p.has("Caught up", "secrets") })
	if n := len(p.lines("No permission")); n != 1 {
		t.Errorf("told %d times that something is refused, want once: %v", n, p.lines("No permission"))
	}

	p.awaits("written", w.isWritten)
	since := w.kill(p)
	w.undefine("gadgets")
	p = w.run()
	p.awaits("caught up again", func() bool { return p.hasAll(append(w.followed, "secrets", "widgets.example.com")) })
	p.awaits("dropped", func() bool { return strings.Contains(w.says("query", "gadgets"), "unknown resource") })
	for _, r := range w.requests(since) {
		if r.IsList() {
			t.Errorf("listed again: %s", r.URI)
		}
	}
	w.undefine("widgets")
	p.awaits("dropped", func() bool { return strings.Contains(w.says("query", "widgets"), "unknown resource") })
	if out := w.says("info"); strings.Contains(out, "widgets.example.com") || strings.Contains(out, "gadgets.example.com") {
		t.Errorf("the file still holds a resource that is gone:\n%s", out)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-p.ended; err != nil {
		t.Errorf("ended with %v:\n%s", err, p.log.String())
	}
}

// isWritten reports whether the file has what the process was told last.
func (w *world) isWritten() bool {
	w.copies++
	copied := filepath.Join(w.dir, fmt.Sprintf("copy-%d.db", w.copies))
	w.says("snapshot", copied)
	out := w.says("query", "secrets,widgets", "-o", "json", "--db", copied)
	return strings.Contains(out, `"s-1"`) && strings.Contains(out, `"w-1"`) && strings.Contains(out, group+"/v2")
}

// kill kills a process and returns the time after that.
func (w *world) kill(p *process) time.Time {
	w.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		w.Fatal(err)
	}
	if err := <-p.ended; err == nil {
		w.Fatalf("ended before it was killed:\n%s", p.log.String())
	}
	return time.Now()
}

func (p *process) hasAll(resources []string) bool {
	return !slices.ContainsFunc(resources, func(r string) bool { return !p.has("Caught up", r) })
}
