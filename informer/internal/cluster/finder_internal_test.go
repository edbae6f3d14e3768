package cluster

import (
	"net/url"
	"testing"

	"k8s.io/client-go/rest"
)

// TestParse checks what is read from the URL of a list.
func TestParse(t *testing.T) {
	f := &Finder{cfg: &rest.Config{Host: "https://server/below"}}
	for text, want := range map[string]string{
		"/below/api/v1/pods": "pods",
		"/below/apis/apps/v1/namespaces/a/deployments?labelSelector=b%3D1": "deployments.apps",
		"/below/version": "",
		// It would be a part of the scope.
		"/below/api/v1/pods?shardSelector=shardRange(object.metadata.uid)": "",
	} {
		u, err := url.Parse("https://server" + text)
		if err != nil {
			t.Fatal(err)
		}
		if s, _, err := f.parse(u); s.Resource != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, want %q", text, s.Resource, err, want)
		}
	}
}
