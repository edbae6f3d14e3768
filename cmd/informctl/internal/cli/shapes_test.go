package cli_test

import (
	"bytes"
	"strings"
	"testing"
)

// TestOtherShapesEndNothing checks that an object that a condition or a template makes no
// sense of does not end a command that follows others.
func TestOtherShapesEndNothing(t *testing.T) {
	const ten = "[1,2,3,4,5,6,7,8,9,10]"
	costly := "!has(object.spec.nodeSelector) || "
	for _, v := range []string{"a", "b", "c", "d", "e", "f"} {
		costly += ten + ".all(" + v + ", "
	}
	costly += "true))))))"
	for name, args := range map[string][]string{
		"watch with a field":          {"watch", "pods", "-o", "name", "--no-headers", "--initial", "--field-selector", "spec.nodeSelector!=x"},
		"watch with an expression":    {"watch", "pods", "-o", "name", "--no-headers", "--initial", "--where", costly},
		"watch with a template":       {"watch", "pods", "-o", "jsonpath=pod/{.metadata.name}{.spec.nodeSelector[0]}", "--initial"},
		"history with a field":        {"history", "pods", "-o", "name", "--follow", "--field-selector", "spec.nodeSelector!=x"},
		"history with an expression":  {"history", "pods", "-o", "name", "--follow", "--where", costly},
		"query and watch with fields": {"query", "pods", "-o", "name", "--watch", "--field-selector", "spec.nodeSelector!=x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := runProcess(t, pod("a", "zero", "web"))
			for !bytes.Contains(askSocket(t, p.path, "/v1/history?scope=pods"), []byte(`"Time":"2`)) {
				continue // until the list is written, which is where the log begins
			}
			w := following(t, append(args, "--db", p.path)...)
			if args[0] != "history" {
				w.until(t, "pod/zero")
			}
			odd := pod("a", "odd", "web")
			odd.Spec.NodeSelector = map[string]string{"a": "b"}
			p.create(t, odd)
			p.create(t, pod("a", "last", "web"))
			w.until(t, "pod/last")
			w.stop()
			for w.Scan() {
				continue
			}
			if code := <-w.code; code != 0 {
				t.Errorf("exit code %d: %s", code, w.errs.String())
			}
			p.stop()
		})
	}
}

// until reads lines until one contains a text.
func (w *watching) until(t *testing.T, text string) {
	t.Helper()
	for w.Scan() {
		if strings.Contains(w.Text(), text) {
			return
		}
	}
	t.Fatalf("the output ended before %s: %s", text, w.errs.String())
}
