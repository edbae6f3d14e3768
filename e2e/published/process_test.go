package published_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process is an informctl that is killed and started again.
type process struct {
	w    *world
	name string
	args []string
	cmd  *exec.Cmd

	mu  sync.Mutex // protects log
	log bytes.Buffer
}

// Write implements io.Writer for the log.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

func (p *process) start() {
	p.w.Helper()
	p.cmd = p.w.command(p.args...)
	p.cmd.Stderr = p
	if err := p.cmd.Start(); err != nil {
		p.w.Fatal(err)
	}
}

// kill ends the process with a SIGKILL.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.cmd = nil
}

// command returns an informctl that knows the server and the database.
func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.Context(), w.program, args...)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "INFORMCTL_DB=", "KUBECONFIG="+w.cp.Kubeconfig(), "INFORMCTL_POSTGRES="+w.pg.DSN())
	return cmd
}

// says returns what a command prints on standard output, "" if it fails.
func (w *world) says(args ...string) []byte {
	out, err := w.command(args...).Output()
	if err != nil {
		return nil
	}
	return out
}

// objects returns the UID and resource version of each config map that a file has, by
// name.
func (w *world) objects(file string) map[string]string {
	var list struct {
		Items []struct {
			Metadata struct{ Name, UID, ResourceVersion string }
		}
	}
	if json.Unmarshal(w.says("query", "configmaps", "-n", "default", "-o", "json", "--db", file), &list) != nil {
		return nil
	}
	out := map[string]string{}
	for _, item := range list.Items {
		out[item.Metadata.Name] = item.Metadata.UID + "@" + item.Metadata.ResourceVersion
	}
	return out
}

// deletions returns how often the log of a file has the deletion of each config map.
func (w *world) deletions(file string) map[string]int {
	out := map[string]int{}
	dec := json.NewDecoder(bytes.NewReader(w.says("history", "configmaps", "-n", "default", "--deleted", "-o", "json", "--db", file)))
	for {
		var change struct{ Name string }
		if dec.Decode(&change) != nil {
			return out
		}
		out[change.Name]++
	}
}
