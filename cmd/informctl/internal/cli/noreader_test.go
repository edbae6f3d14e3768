package cli_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	bbolt "go.etcd.io/bbolt"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/informctl/informctl/cmd/informctl/internal/cli"
	"github.com/informctl/informctl/informer"
)

// unread is an output whose reader has gone away.
type unread struct{}

func (unread) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// TestDiffersUnread checks that what compares or checks says by its exit code that
// something differs or is wrong, also where nobody reads what.
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
	damaged := filepath.Join(dir, "damaged.db")
	writeHistory(t, damaged)
	raw, err := bbolt.Open(damaged, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Update(func(tx *bbolt.Tx) error {
		scopes := tx.Bucket([]byte("scope"))
		id, _ := scopes.Cursor().First()
		return flipLast(scopes.Bucket(id).Bucket([]byte("log")))
	})
	if err := errors.Join(err, raw.Close()); err != nil {
		t.Fatal(err)
	}
	lost := filepath.Join(dir, "lost.db")
	writeConsumers(t, lost)
	if raw, err = bbolt.Open(lost, 0o600, nil); err != nil {
		t.Fatal(err)
	}
	err = raw.Update(func(tx *bbolt.Tx) error {
		return flipLast(tx.Bucket([]byte("meta")).Bucket([]byte("ledger")).Bucket([]byte("consumer/widgets")))
	})
	if err := errors.Join(err, raw.Close()); err != nil {
		t.Fatal(err)
	}
	wrong := filepath.Join(dir, "wrong.db")
	serveStatus(t, wrong, informer.Status{})
	for want, all := range map[int][][]string{
		0: {{"query", "pods", "--db", one}, {"verify", "--db", one}},
		1: {
			{"diff", one, other, "pods"},
			{"audit", "pods", "--db", audited, "--kubeconfig", config},
			{"status", "--db", wrong},
			{"status", "--db", one},
		},
		3: {{"verify", "--db", damaged}, {"info", "--db", lost}, {"consumers", "--db", lost}},
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
