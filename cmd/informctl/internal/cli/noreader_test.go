package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/informctl/informctl/cmd/informctl/internal/cli"
)

// unread is an output whose reader has gone away.
type unread struct{}

func (unread) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// TestDiffersUnread checks that what compares says by its exit code that something
// differs, also where nobody reads what.
func TestDiffersUnread(t *testing.T) {
	dir := t.TempDir()
	one, other := filepath.Join(dir, "one.db"), filepath.Join(dir, "other.db")
	writeFile(t, one)
	writeMore(t, other)
	audited := filepath.Join(dir, "audited.db")
	writeAudited(t, audited, auditCluster)
	config := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(config, []byte(kubeconfig(auditServer(t))), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, all := range map[int][][]string{
		0: {{"query", "pods", "--db", one}},
		1: {{"diff", one, other, "pods"}, {"audit", "pods", "--db", audited, "--kubeconfig", config}},
	} {
		for _, args := range all {
			var errOut bytes.Buffer
			code := cli.MainAt(t.Context(), genericiooptions.IOStreams{In: strings.NewReader(""), Out: unread{}, ErrOut: &errOut}, args, now)
			if code != want {
				t.Errorf("%q: exit code %d, want %d\n%s", args, code, want, errOut.String())
			}
		}
	}
}
