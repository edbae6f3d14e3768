package cli_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/informctl/informctl/cmd/informctl/internal/termtest"
	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/store/bolt"
)

// TestWipeAsks checks that wipe asks on a terminal, and drops nothing unless the answer
// is yes.
func TestWipeAsks(t *testing.T) {
	for answer, code := range map[string]int{"\n": 1, "n\n": 1, "\x04": 1, "y\n": 0, "Yes\n": 0} {
		path := filepath.Join(t.TempDir(), "f.db")
		writeFile(t, path)
		for _, want := range []struct{ resource, question string }{
			{"pods", "Drop 4 objects of pods in "}, {"", "Drop "},
		} {
			args := []string{"wipe", "--db", path}
			if want.resource != "" {
				args = append(args, want.resource)
			}
			s := termtest.Open(t, 200, 10)
			cmd := exec.CommandContext(t.Context(), "informctl", args...)
			s.Start(cmd)
			s.WaitFor(want.question, path+"? [y/N]")
			s.Type(answer)
			_ = cmd.Wait() // the exit code says how it has ended
			says := map[int]string{0: "dropped ", 1: "informctl: nothing was dropped"}[code]
			if screen := s.WaitFor(says); cmd.ProcessState.ExitCode() != code || want.resource == "" && !strings.Contains(screen, " resources in ") {
				t.Errorf("%q: exit code %d\n%s", answer, cmd.ProcessState.ExitCode(), screen)
			}
			if got := say(t.Context(), "query", "pods", "--count", "--db", path); (got.Out == "4\n") != (code == 1) {
				t.Errorf("%q: %+v", answer, got)
			}
		}
	}
}

// TestWipeAsksForConsumers checks that wipe asks where a file holds no objects any more,
// and durable consumers.
func TestWipeAsksForConsumers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := durable.Open(db, "widgets", durable.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ answer, says string }{
		{"n\n", "informctl: nothing was dropped"}, {"y\n", "consumer widgets: forgotten"},
	} {
		s := termtest.Open(t, 200, 10)
		cmd := exec.CommandContext(t.Context(), "informctl", "wipe", "--db", path)
		s.Start(cmd)
		s.WaitFor("Drop what 1 consumers have left to do in ", path+"? [y/N]")
		s.Type(step.answer)
		_ = cmd.Wait()
		s.WaitFor(step.says)
	}
}
