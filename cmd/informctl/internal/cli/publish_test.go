package cli_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/informctl/informctl/postgres"
	"github.com/informctl/informctl/postgres/pgtest"
)

// TestPublishInterrupted checks that an interrupt is the regular end of publish, also
// while the database or the server cannot be reached.
func TestPublishInterrupted(t *testing.T) {
	check := func(t *testing.T, got said, waitsFor string) {
		t.Helper()
		if got.Code != 0 || !strings.Contains(got.Err, waitsFor) || strings.Contains(got.Err, "informctl: ") {
			t.Errorf("exit code %d, %s", got.Code, got.Err)
		}
	}
	for _, args := range [][]string{{"pods"}, {"--sql"}} {
		t.Run("database/"+args[0], func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			go func() {
				for n := 0; ; n++ {
					c, err := l.Accept()
					if err != nil {
						return
					}
					if n > 1 { // the first attempt was logged
						stop()
					}
					_ = c.Close()
				}
			}()
			t.Setenv("INFORMCTL_POSTGRES", "postgres://a@"+l.Addr().String()+"/a?sslmode=disable")
			check(t, say(ctx, append([]string{"publish"}, args...)...), "PostgreSQL cannot be reached")
		})
	}
	t.Run("server", func(t *testing.T) {
		dsn, schema := pgtest.DSN(t), pgtest.Schema()
		if err := postgres.Migrate(t.Context(), dsn, postgres.Options{Schema: schema}); err != nil {
			t.Fatal(err)
		}
		t.Setenv("INFORMCTL_POSTGRES", dsn)
		ctx, stop := context.WithCancel(t.Context())
		asked := 0
		config := runServer(t, func(*http.Request) *metav1.Status {
			if asked++; asked > 1 {
				stop()
			}
			return &metav1.Status{Status: "Failure", Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: "no"}
		})
		check(t, say(ctx, "publish", "pods", "--postgres-schema", schema, "--kubeconfig", config), "Server cannot be reached")
	})
}
