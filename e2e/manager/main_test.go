package manager_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/informctl/informctl/e2e/child"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The subtests wait for the server most of the time.
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	if os.Getenv(widgetsVariable) != "" {
		child.Main(suite{m}, widgetsVariable, runWidgets)
	}
	child.Main(suite{m}, replicaVariable, runReplica)
}

// suite stops the shared control plane before the check for leaks.
type suite struct{ *testing.M }

func (s suite) Run() int {
	code := s.M.Run()
	if err := shared.end(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the control plane:", err)
		return max(code, 1)
	}
	return code
}
