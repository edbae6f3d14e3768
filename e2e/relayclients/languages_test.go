package relayclients_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// language is a client of another language.
type language struct {
	name    string
	command []string // the kubeconfig follows
	env     []string
	missing string // what to install if the client is not there; "" if it is
}

// python returns the client of Debian, which only Debian's own Python finds.
func python() language {
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(name, "-c", "import kubernetes").Run() == nil {
			return language{name: "python", command: []string{name, "testdata/client.py"}}
		}
	}
	return language{name: "python", missing: "apt-get install python3-kubernetes"}
}

// node returns the client of npm, which is found in NODE_PATH or among what is installed
// for all.
func node() language {
	root, _ := exec.Command("npm", "root", "-g").Output() // there may be no npm
	path := "NODE_PATH=" + os.Getenv("NODE_PATH") + string(filepath.ListSeparator) + strings.TrimSpace(string(root))
	cmd := exec.Command("node", "-e", "import(require.resolve('@kubernetes/client-node')).catch(() => process.exit(1))")
	cmd.Env = append(os.Environ(), path)
	if cmd.Run() != nil {
		return language{name: "node", missing: "npm install -g @kubernetes/client-node, in a version for this node"}
	}
	return language{name: "node", command: []string{"node", "testdata/client.cjs"}, env: []string{path}}
}

// testLanguage reads with a client of another language, with the server and without it,
// and watches.
func testLanguage(w *world, l language) {
	if l.missing != "" {
		w.Skipf("NOT TESTED: there is no client for %s here: %s", l.name, l.missing)
	}
	k := w.keep()
	k.caughtUp()
	kubeconfig := k.kubeconfig()
	k.await(func() bool { return w.run(kubeconfig, "version").out == w.run(w.cp.Kubeconfig(), "version").out }, k.output)
	widgets := strings.Count(w.run(w.cp.Kubeconfig(), "get", "widgets", "-A", "-o", "name").out, "\n")
	want := map[string]any{"pods": []any{"web-0", "web-1"}, "phase": "Running", "widgets": float64(widgets), "version": w.cp.Version(), "refused": 405.}
	read := func(when string) *process {
		w.Helper()
		cmd := exec.CommandContext(w.Context(), l.command[0], append(l.command[1:], kubeconfig)...)
		cmd.Env = append(os.Environ(), l.env...)
		p := w.start(cmd)
		p.awaitText("\n")
		line, _, _ := strings.Cut(p.output(), "\n")
		var got map[string]any
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			w.Fatalf("%s: %v: %s", when, err, p.output())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			w.Errorf("%s (-want +got):\n%s", when, diff)
		}
		return p
	}
	p := read("up")
	w.label("changing", l.name)
	p.awaitText("MODIFIED changing " + l.name)
	p.kill()
	w.stopServer()
	p = read("down")
	w.startServer()
	w.label("changing", "again")
	p.awaitText("MODIFIED changing again")
}
