package relay

import (
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// TestWhoReads asks as those do who may read, and as those who may not.
func TestWhoReads(t *testing.T) {
	l, config := serving(t, file(t, 3), Options{}, filepath.Join(t.TempDir(), "kubeconfig"))
	with, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	bare := rest.CopyConfig(config)
	bare.BearerToken = ""
	without, err := rest.HTTPClientFor(bare)
	if err != nil {
		t.Fatal(err)
	}
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	const pods, review = "/api/v1/pods", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	for name, test := range map[string]struct {
		client       *http.Client
		method, path string
		change       func(*http.Request)
		want         int
	}{
		"list":              {with, "GET", pods, nil, 200},
		"no token":          {without, "GET", pods, nil, 401},
		"no token, unheld":  {without, "GET", "/api/v1/nodes", nil, 401},
		"no token, nothing": {without, "GET", "/nothing", nil, 401},
		"wrong token":       {without, "GET", pods, set("Authorization", "Bearer "+l.Token[1:]), 401},
		"empty token":       {without, "GET", pods, set("Authorization", "Bearer "), 401},
		"password":          {without, "GET", pods, set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("informctl:"+l.Token))), 401},
		"token in the path": {without, "GET", pods + "?token=" + l.Token + "&access_token=" + l.Token, nil, 401},
		"probe":             {without, "GET", "/livez", nil, 200},
		"ready":             {without, "GET", "/readyz", nil, 200},
		"other host":        {with, "GET", pods, func(r *http.Request) { r.Host = "evil.example.com" }, 403},
		"localhost":         {with, "GET", pods, func(r *http.Request) { r.Host = "localhost:1" }, 200},
		"other origin":      {with, "GET", pods, set("Origin", "https://evil.example.com"), 403},
		"null origin":       {with, "GET", pods, set("Origin", "null"), 403},
		"own origin":        {with, "GET", pods, set("Origin", config.Host), 200},
		"impersonation":     {with, "GET", pods, set("Impersonate-User", "system:admin"), 403},
		"post":              {with, "POST", "/api/v1/namespaces/default/pods", nil, 405},
		"put":               {with, "PUT", "/api/v1/namespaces/default/pods/p", nil, 405},
		"patch":             {with, "PATCH", "/api/v1/namespaces/default/pods/p", nil, 405},
		"delete":            {with, "DELETE", "/api/v1/namespaces/default/pods/p", nil, 405},
		"delete all":        {with, "DELETE", "/api/v1/namespaces/default/pods", nil, 405},
		"log":               {with, "GET", "/api/v1/namespaces/default/pods/p/log", nil, 405},
		"exec":              {with, "POST", "/api/v1/namespaces/default/pods/p/exec", nil, 405},
		"proxy":             {with, "GET", "/api/v1/namespaces/default/pods/p/proxy/x", nil, 405},
		"metrics":           {with, "GET", "/metrics", nil, 404},
		"profiles":          {with, "GET", "/debug/pprof/heap", nil, 404},
		"logs":              {with, "GET", "/logs/", nil, 404},
		"preflight":         {with, "OPTIONS", pods, set("Origin", "https://evil.example.com"), 403},
		"empty review":      {with, "POST", review, nil, 400},
		"secrets":           {with, "GET", "/api/v1/secrets", nil, 403},
		"a secret":          {with, "GET", "/api/v1/namespaces/default/secrets/s", nil, 403},
		"their metadata":    {with, "GET", "/api/v1/secrets", set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"), 403},
		"two names":         {with, "GET", pods + "?fieldSelector=metadata.name%3Da%2Cmetadata.name%3Db", nil, 200},
		"many selectors":    {with, "GET", pods + "?labelSelector=" + strings.TrimSuffix(strings.Repeat("a,", 101), ","), nil, 400},
		"long selector":     {with, "GET", pods + "?fieldSelector=metadata.name%3D" + strings.Repeat("a", 9000), nil, 400},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := ask(t, test.client, config, test.method, test.path, test.change)
			if status != test.want {
				t.Errorf("it answers %d, want %d: %.300s", status, test.want, body)
			}
			if status != 200 && strings.Contains(body, l.Token) {
				t.Error("the answer has the token")
			}
		})
	}
	for _, path := range []string{"/api", "/apis", "/api/v1"} {
		if _, body := ask(t, with, config, "GET", path, nil); strings.Contains(body, "secrets") {
			t.Errorf("%s has secrets: %s", path, body)
		}
	}
}

// TestSecretsOnRequest serves Secrets, which takes an option.
func TestSecretsOnRequest(t *testing.T) {
	_, config := serving(t, file(t, 1), Options{Secrets: true}, filepath.Join(t.TempDir(), "kubeconfig"))
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	if status, body := ask(t, c, config, "GET", "/api/v1/secrets", nil); status != 200 || !strings.Contains(body, `"data":`) {
		t.Errorf("it answers %d: %s", status, body)
	}
}

// TestKubeconfig looks at the file that has the token: only its owner reads it, a process
// that is started again has the same token, port and certificate, and one that others
// could read is not used again.
func TestKubeconfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	listen := func() (token, address string, content []byte) {
		l, err := Listen(t.Context(), 0, path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		info, err := os.Stat(path)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("the kubeconfig has the mode %v, want 0600: %v", info.Mode(), err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return l.Token, l.Addr().String(), b
	}
	token, address, content := listen()
	was, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	again, sameAddress, sameContent := listen()
	if is, err := os.Stat(path); err != nil || !os.SameFile(was, is) {
		t.Errorf("the kubeconfig was written again, for which there may be no room: %v", err)
	}
	if token != again || address != sameAddress || string(content) != string(sameContent) {
		t.Errorf("the second process has another kubeconfig:\n%s\nwant\n%s", sameContent, content)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if other, _, _ := listen(); other == token {
		t.Error("a token that others could read is used again")
	}
	target := filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	listen()
	if b, err := os.ReadFile(target); err != nil || string(b) != "other" {
		t.Errorf("what a link leads to was written: %q, %v", b, err)
	}
}
