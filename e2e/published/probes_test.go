package published_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/informctl/informctl/internal/testport"
)

// TestProbes asks two publishers what a cluster asks them. Both are ready if one of them
// publishes, and neither without PostgreSQL; it ends neither.
func TestProbes(t *testing.T) {
	w := newWorld(t)
	var addresses []string
	for i := range 2 {
		l, err := testport.Listen()
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, l.Addr().String())
		_ = l.Close()
		w.process(fmt.Sprintf("publisher %d", i), "publish", "configmaps", "--metrics-bind-address", addresses[i]).start()
	}
	both := func(what, path, want string) {
		t.Helper()
		for _, address := range addresses {
			var got string
			for end := time.Now().Add(time.Minute); ; <-time.After(100 * time.Millisecond) {
				if got = ask(t, "http://"+address+path); strings.Contains(got, want) {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("%s: %s is %q, want %q", what, path, got, want)
				}
			}
		}
	}
	both("published", "/readyz", "200 ok\n")
	both("published", "/metrics", "\ninformctl_publish_published{cluster=")
	w.pg.Stop("immediate")
	both("without PostgreSQL", "/readyz", "503 ")
	both("without PostgreSQL", "/metrics", "500 ")
	both("without PostgreSQL", "/healthz", "200 ok\n")
	w.pg.Up()
	both("with PostgreSQL again", "/readyz", "200 ok\n")
	both("with PostgreSQL again", "/metrics", `resource="configmaps",scope="1"} 1`)
}

// ask returns the status and the body of an answer, or the error.
func ask(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(response.StatusCode, " ", string(body))
}
