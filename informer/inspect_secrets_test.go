package informer_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
)

// TestEndpointAnswersNothingAboutValuesOfSecrets checks that an index of what is hidden
// of Secrets answers no question unless the request asks for the values, and that one of
// what is shown does.
func TestEndpointAnswersNothingAboutValuesOfSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fakeapi.New(&corev1.Secret{}, &corev1.SecretList{}, fakeapi.Options{})
		if _, err := server.Create(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default", Labels: map[string]string{"app": "web"}},
			Data:       map[string][]byte{"password": []byte("hunter2")},
		}); err != nil {
			t.Fatal(err)
		}
		password, err := index.Field("data.password")
		if err != nil {
			t.Fatal(err)
		}
		inf, err := informer.New(server, &corev1.Secret{}, informer.Options{Indexes: []index.Index{password, index.Label("app")}})
		if err != nil {
			t.Fatal(err)
		}
		r := &run{w: &world{T: t}, inf: inf, done: make(chan struct{})}
		r.start()
		r.sync()
		h := handlerOf(inf)
		for path, hidden := range map[string]bool{
			"/v1/objects?index=field:data.password&value=" + url.QueryEscape("aHVudGVyMg=="): true,
			"/v1/objects?index=field:data.password&value=x":                                  true,
			"/v1/keys?index=field:data.password&value=x":                                     true,
			"/v1/index?name=field:data.password&after=a":                                     true,
			"/v1/index?name=field:data.password":                                             false,
			"/v1/objects?index=label:app&value=web":                                          false,
			"/v1/keys?index=label:app&value=web":                                             false,
			"/v1/index?name=label:app&after=a":                                               false,
		} {
			want := http.StatusOK
			if hidden {
				want = http.StatusForbidden
			}
			status, lines := get(h, path)
			if status != want || strings.Contains(strings.Join(lines, ""), "aHVudGVyMg") {
				t.Errorf("%s: %d %q, want %d", path, status, lines, want)
			}
			if status, lines := get(h, path+"&secrets=show"); status != http.StatusOK {
				t.Errorf("%s shown: %d %q", path, status, lines)
			}
		}
		r.end()
	})
}
