package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/informctl/informctl/cmd/informctl/internal/cli"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// resources are the resources of a server, by group and version.
type resources map[string][]metav1.APIResource

// groups returns the groups as the server names them.
func (r resources) groups() metav1.APIGroupList {
	out := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for gv := range r {
		if group, version, ok := strings.Cut(gv, "/"); ok {
			v := metav1.GroupVersionForDiscovery{GroupVersion: gv, Version: version}
			out.Groups = append(out.Groups, metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
		}
	}
	return out
}

// runServer is a server with pods, which it lists if answer returns nil.
func runServer(t *testing.T, answer func(*http.Request) *metav1.Status) (kubeconfigPath string) {
	t.Helper()
	return runServerOf(t, resources{"v1": {
		{Name: "pods", SingularName: "pod", Namespaced: true, Kind: "Pod", Verbs: metav1.Verbs{"list", "watch"}, ShortNames: []string{"po"}},
		{Name: "pods/log", SingularName: "", Namespaced: true, Kind: "Pod", Verbs: metav1.Verbs{"list", "watch"}},
		{Name: "secrets", SingularName: "secret", Namespaced: true, Kind: "Secret", Verbs: metav1.Verbs{"list", "watch"}},
		{Name: "componentstatuses", SingularName: "componentstatus", Kind: "ComponentStatus", Verbs: metav1.Verbs{"list"}},
	}}, answer)
}

func runServerOf(t *testing.T, of resources, answer func(*http.Request) *metav1.Status) (kubeconfigPath string) {
	t.Helper()
	return runServerThat(t, func() resources { return of }, answer)
}

// runServerThat is runServerOf for resources that change.
func runServerThat(t *testing.T, serves func() resources, answer func(*http.Request) *metav1.Status) (kubeconfigPath string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var body any
		of := serves()
		switch r.URL.Path {
		case "/api":
			body = metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
		case "/apis":
			body = of.groups()
		case "/api/v1/namespaces/kube-system":
			body = corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "one"}}
		default:
			gv := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/api/"), "/apis/")
			if is, ok := of[gv]; ok {
				body = metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, GroupVersion: gv, APIResources: is}
				break
			}
			body = corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "5"}}
		}
		if status := answer(r); status != nil {
			status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			w.WriteHeader(int(status.Code))
			body = status
		}
		_ = json.NewEncoder(w).Encode(body)
	}))
	t.Cleanup(s.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfig(s.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRunRefused checks that a run that the server refuses leaves nothing in the file,
// about which readers would complain.
func TestRunRefused(t *testing.T) {
	config := runServer(t, func(r *http.Request) *metav1.Status {
		if !strings.Contains(r.URL.Query().Get("fieldSelector"), "spec.bogus") {
			return nil
		}
		return &metav1.Status{Status: "Failure", Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest, Message: "field label not supported: spec.bogus"}
	})
	for name, write := range map[string]func(*testing.T, string){"new file": func(*testing.T, string) {}, "file": writeFile} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			write(t, path)
			got := say(t.Context(), "run", "pods", "--once", "--field-selector", "spec.bogus=x", "--kubeconfig", config, "--db", path)
			if got.Code != 1 || !strings.Contains(got.Err, "spec.bogus") {
				t.Errorf("exit code %d, %s", got.Code, got.Err)
			}
			if info := say(t.Context(), "info", "--db", path); info.Code != 0 || strings.Contains(info.Out, "spec.bogus") {
				t.Errorf("exit code %d, %s", info.Code, info.Out)
			}
		})
	}
}

// TestRunOfUnlisted checks that run does not take a resource that cannot be listed, as
// bindings, for one that was there.
func TestRunOfUnlisted(t *testing.T) {
	of := resources{"v1": {{Name: "bindings", SingularName: "binding", Namespaced: true, Kind: "Binding", Verbs: metav1.Verbs{"create"}}}}
	config := runServerOf(t, of, func(r *http.Request) *metav1.Status {
		if r.URL.Path != "/api/v1/bindings" {
			return nil
		}
		return &metav1.Status{Status: "Failure", Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "the server could not find the requested resource"}
	})
	got := say(t.Context(), "run", "bindings", "--once", "--kubeconfig", config, "--db", filepath.Join(t.TempDir(), "informers.db"))
	if got.Code != 1 || !strings.Contains(got.Err, "\ninformctl: bindings: The server has no such resource, or none that can be listed and watched: ") {
		t.Errorf("exit code %d, %s", got.Code, got.Err)
	}
}

// TestRunWithoutLogin checks that the error for a server that refuses the credentials
// says so.
func TestRunWithoutLogin(t *testing.T) {
	config := runServer(t, func(*http.Request) *metav1.Status {
		return &metav1.Status{Status: "Failure", Code: http.StatusUnauthorized, Reason: metav1.StatusReasonUnauthorized, Message: "Unauthorized"}
	})
	got := say(t.Context(), "run", "pods", "--kubeconfig", config, "--db", filepath.Join(t.TempDir(), "informers.db"))
	if got.Code != 1 || !strings.HasPrefix(got.Err, "informctl: not logged in to http://127.0.0.1:") || !strings.HasSuffix(got.Err, "; renew the token or certificate of the kubeconfig\n") {
		t.Errorf("exit code %d, %s", got.Code, got.Err)
	}
}

// TestRunWithoutFile checks that run goes on without a file that it cannot use, says so,
// and leaves what is there alone. With --once, after which nothing would be left, it is
// an error.
func TestRunWithoutFile(t *testing.T) {
	config := runServer(t, func(*http.Request) *metav1.Status { return nil })
	for name, test := range map[string]struct {
		prepare func(path string) error
		path    string // "" is a file that an earlier run has made
		says    string
	}{
		"another owner":  {func(path string) error { return os.Chown(path, 1001, 2000) }, "", "belongs to user 1001"},
		"all may write":  {func(path string) error { return os.Chmod(path, 0o666) }, "", "may be written by everybody"},
		"two hard links": {func(path string) error { return os.Link(path, path+".copy") }, "", "hard links"},
		"a later format": {func(path string) error { return replaceIn(path, "cache format 2", "cache format 9") }, "", "this program reads"},
		"a link": {func(path string) error {
			return errors.Join(os.Rename(path, path+".moved"), os.Symlink(path+".moved", path))
		}, "", "is a symbolic link"},
		"no directory": {nil, "/proc/none/informers.db", "no such file or directory"},
		"a directory":  {nil, t.TempDir(), "is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			path := test.path
			run := func(ctx context.Context, config string, args ...string) said {
				return say(ctx, append([]string{"run", "--kubeconfig", config, "--db", path}, args...)...)
			}
			if path == "" {
				path = filepath.Join(t.TempDir(), "informers.db")
				if got := run(t.Context(), config, "pods", "--once"); got.Code != 0 {
					t.Fatalf("%+v", got)
				}
				if err := test.prepare(path); err != nil {
					t.Skipf("SKIPPED: needs root: %v", err)
				}
			}
			before, _ := os.ReadFile(path) // not of a directory
			for _, args := range [][]string{{"pods"}, {"--all"}} {
				once := run(t.Context(), config, append(args, "--once")...)
				_, reason, said := strings.Cut(once.Err, "informctl: nothing can be stored: ")
				if once.Code != 1 || !said || !strings.Contains(reason, test.says) {
					t.Errorf("%s --once: exit code %d, %s", args, once.Code, once.Err)
				}
				ctx, stop := context.WithCancel(t.Context())
				got := run(ctx, runServer(t, func(r *http.Request) *metav1.Status {
					if r.URL.Query().Has("watch") {
						stop()
					}
					return nil
				}), args...)
				if got.Code != 0 || !strings.Contains(got.Err, "level=ERROR") || !strings.Contains(got.Err, test.says) || strings.Contains(got.Err, "msg=Keeping") {
					t.Errorf("%s: exit code %d, %s", args, got.Code, got.Err)
				}
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("the file has changed")
			}
		})
	}
}

// TestRunOfOthers checks that run refuses a file that is not a cache, or that another
// process holds.
func TestRunOfOthers(t *testing.T) {
	config := runServer(t, func(*http.Request) *metav1.Status { return nil })
	path := filepath.Join(t.TempDir(), "informers.db")
	release, err := bolt.Lock(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := say(t.Context(), "run", "pods", "--once", "--kubeconfig", config, "--db", path)
	if release(); got.Code != 1 || !strings.Contains(got.Err, "is in use by another process") {
		t.Errorf("%+v", got)
	}
	got = say(t.Context(), "run", "pods", "--once", "--kubeconfig", config, "--db", config)
	if got.Code != 1 || !strings.Contains(got.Err, "is not an informctl cache") {
		t.Errorf("%+v", got)
	}
}

// TestRunOfOthersUnreached checks that run says so before it waits for a server, too.
func TestRunOfOthersUnreached(t *testing.T) {
	dir := t.TempDir()
	config, held, pipe := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "held.db"), filepath.Join(dir, "pipe")
	if err := errors.Join(os.WriteFile(config, []byte(kubeconfig("http://127.0.0.1:1")), 0o600), syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(held, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for path, want := range map[string]string{
		held: "is in use by another process", config: "is not an informctl cache", pipe: "is a named pipe",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		got := say(ctx, "run", "pods", "--kubeconfig", config, "--db", path)
		if cancel(); got.Code != 1 || !strings.Contains(got.Err, want) {
			t.Errorf("%s: exit code %d, %s", path, got.Code, got.Err)
		}
	}
}

// TestRunWithoutKey checks that an interrupt is the regular end of a run of Secrets,
// which it does not store. With --once they are missing.
func TestRunWithoutKey(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	config := runServer(t, func(r *http.Request) *metav1.Status {
		if r.URL.Query().Has("watch") {
			stop()
		}
		return nil
	})
	path := filepath.Join(t.TempDir(), "informers.db")
	for code, args := range [][]string{{}, {"--once"}} {
		if code == 1 {
			ctx = t.Context()
		}
		got := say(ctx, append([]string{"run", "pods", "secrets", "--kubeconfig", config, "--db", path}, args...)...)
		if got.Code != code || !strings.Contains(got.Err, "secrets are not stored without a key; give --key-file or --key-command; the other resources go on") {
			t.Errorf("%s: exit code %d, %s", args, got.Code, got.Err)
		}
	}
}

// TestRunWithMissingKey checks that a key file that cannot be read is told at once.
func TestRunWithMissingKey(t *testing.T) {
	config, dir := runServer(t, func(*http.Request) *metav1.Status { return nil }), t.TempDir()
	got := say(t.Context(), "run", "secrets", "--kubeconfig", config, "--db", filepath.Join(dir, "informers.db"), "--key-file", filepath.Join(dir, "nope"))
	if got.Code != 1 || !strings.Contains(got.Err, "secrets are not stored: read key file: open ") || strings.Count(got.Err, "\n") != 1 {
		t.Errorf("exit code %d, %s", got.Code, got.Err)
	}
}

// TestRunInMissingNamespace checks that a namespace that the server does not have is
// told: it is mostly misspelt.
func TestRunInMissingNamespace(t *testing.T) {
	config := runServer(t, func(r *http.Request) *metav1.Status {
		if r.URL.Path != "/api/v1/namespaces/misspelt" {
			return nil
		}
		return &metav1.Status{Status: "Failure", Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: `namespaces "misspelt" not found`}
	})
	for namespace, told := range map[string]bool{"misspelt": true, "default": false} {
		got := say(t.Context(), "run", "pods", "--once", "-n", namespace, "--kubeconfig", config, "--db", filepath.Join(t.TempDir(), "informers.db"))
		if has := strings.Contains(got.Err, "informctl: the server has no namespace \"misspelt\"\n"); got.Code != 0 || has != told {
			t.Errorf("%s: exit code %d, %s", namespace, got.Code, got.Err)
		}
	}
}

// TestRunUnknownResource checks that a name that the server does not have is told with
// those that it has.
func TestRunUnknownResource(t *testing.T) {
	config := runServer(t, func(*http.Request) *metav1.Status { return nil })
	got := say(t.Context(), "run", "podz", "--kubeconfig", config, "--db", filepath.Join(t.TempDir(), "informers.db"))
	if want := "informctl: the server has no resource \"podz\"; it has componentstatuses, pods, secrets\n"; got.Code != 1 || got.Err != want {
		t.Errorf("exit code %d, %s", got.Code, got.Err)
	}
}

// replaceIn replaces a text in a file by another one of its length.
func replaceIn(path, old, text string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, bytes.ReplaceAll(content, []byte(old), []byte(text)), 0o600)
}

// TestRunAll checks what run --all follows of a server whose resources are pods, which
// may be listed, Secrets, which may not, and one that cannot be watched.
func TestRunAll(t *testing.T) {
	config := runServer(t, func(r *http.Request) *metav1.Status {
		if r.URL.Path != "/api/v1/secrets" {
			return nil
		}
		return &metav1.Status{Status: "Failure", Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "secrets is forbidden"}
	})
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte(testKey), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args  []string
		code  int
		says  []string
		holds string
	}{
		"without a key": {nil, 0, []string{
			`msg="Left out" resource=componentstatuses because="the server cannot watch it"`,
			`msg="Left out" resource=secrets because="secrets are not stored without a key`,
		}, "pods"},
		"with a key": {[]string{"--key-file", keys}, 0, []string{`msg="Left out" resource=secrets because="list: secrets is forbidden"`}, "pods"},
		"excluded":   {[]string{"--key-file", keys, "--exclude", "secret"}, 0, nil, "pods"},
		"later":      {[]string{"--exclude", "wheels.example.com"}, 0, nil, "pods"},
		"unknown":    {[]string{"--exclude", "wheels"}, 1, []string{`informctl: --exclude: the server has no resource "wheels"; one that comes later is named with its group`}, ""},
		"a history":  {[]string{"--history", "24h,po=1h,wheels.example.com=off"}, 0, nil, "pods"},
		"a history of nothing": {[]string{"--history", "wheels=1h"}, 0, []string{
			"informctl: --history wheels: no such resource is followed; name it as in pods=24h or deployments.apps=24h",
		}, "pods"},
		"nothing":     {[]string{"--exclude", "po", "--exclude", "secrets"}, 1, []string{"informctl: there is nothing to follow"}, ""},
		"a namespace": {[]string{"-n", "default"}, 0, nil, "pods       default"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			got := say(t.Context(), append([]string{"run", "--all", "--once", "--kubeconfig", config, "--db", path}, test.args...)...)
			if got.Code != test.code {
				t.Errorf("exit code %d, want %d: %s", got.Code, test.code, got.Err)
			}
			for _, text := range test.says {
				if strings.Count(got.Err, text) != 1 {
					t.Errorf("want once %s\n%s", text, got.Err)
				}
			}
			if name == "excluded" && strings.Contains(got.Err, "resource=secrets") {
				t.Errorf("want nothing of secrets:\n%s", got.Err)
			}
			if test.holds == "" {
				return
			}
			info := say(t.Context(), "info", "--db", path)
			if !strings.Contains(info.Out, "\n"+test.holds+" ") || strings.Contains(info.Out, "secrets") {
				t.Errorf("exit code %d, %s%s", info.Code, info.Out, info.Err)
			}
		})
	}
}

// withOne returns pods, the definitions of custom resources and one more resource, all of
// which can be listed and watched.
func withOne(groupVersion string, one metav1.APIResource) resources {
	of := resources{
		"v1":                      {{Name: "pods", SingularName: "pod", Namespaced: true, Kind: "Pod"}},
		groupVersion:              {one},
		"apiextensions.k8s.io/v1": {{Name: "customresourcedefinitions", SingularName: "customresourcedefinition", Kind: "CustomResourceDefinition"}},
	}
	for _, list := range of {
		list[0].Verbs = metav1.Verbs{"list", "watch"}
	}
	return of
}

// TestRunAllLater checks that run --all takes up what the server could not name at the
// start, as an aggregated API whose server does not answer.
func TestRunAllLater(t *testing.T) {
	of := withOne("late.example.com/v1", metav1.APIResource{Name: "wheels", SingularName: "wheel", Namespaced: true, Kind: "Wheel"})
	var answers atomic.Bool
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	config := runServerOf(t, of, func(r *http.Request) *metav1.Status {
		switch {
		case strings.HasSuffix(r.URL.Path, "/customresourcedefinitions"):
			answers.Store(true)
		case strings.HasSuffix(r.URL.Path, "/wheels"):
			stop()
		case strings.HasSuffix(r.URL.Path, "late.example.com/v1") && !answers.Load():
			return &metav1.Status{Status: "Failure", Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: "no"}
		}
		return nil
	})
	got := say(ctx, "run", "--all", "--kubeconfig", config, "--db", filepath.Join(t.TempDir(), "informers.db"))
	if got.Code != 0 || strings.Count(got.Err, `msg="Left out" resource=late.example.com/v1`) != 1 {
		t.Errorf("exit code %d, %s", got.Code, got.Err)
	}
}

// TestRunAllChanges checks that run --all follows the resources and versions that come
// and go: those of a server that is upgraded, and of an aggregated API.
func TestRunAllChanges(t *testing.T) {
	defer cli.SetRediscoverEvery(20 * time.Millisecond)()
	of := func(groupVersions ...string) resources {
		out := resources{}
		for _, gv := range append(groupVersions, "v1") {
			group, _, _ := strings.Cut(gv, ".")
			out[gv] = []metav1.APIResource{{Name: group + "s", SingularName: group, Kind: group, Verbs: metav1.Verbs{"list", "watch"}}}
		}
		return out
	}
	before := of("stays.example.com/v1", "goes.example.com/v1", "moves.example.com/v1", "shaky.example.com/v1")
	after := of("stays.example.com/v1", "comes.example.com/v1", "moves.example.com/v2", "shaky.example.com/v1")
	var mu sync.Mutex
	asked, moved, followed, listed := 0, 0, map[string]bool{}, map[string]bool{}
	serves := func() resources {
		mu.Lock()
		defer mu.Unlock()
		if asked <= 3 {
			return before
		}
		return after
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	config := runServerThat(t, serves, func(r *http.Request) *metav1.Status {
		mu.Lock()
		defer mu.Unlock()
		gv, resource, isResource := "", "", false
		if path, ok := strings.CutPrefix(r.URL.Path, "/apis/"); ok && strings.Count(path, "/") == 2 {
			i := strings.LastIndex(path, "/")
			gv, resource, isResource = path[:i], path[i+1:], true
		}
		_, isThere := after[gv]
		switch {
		case r.URL.Path == "/apis":
			if asked < 3 || len(listed) == len(before)-1 { // what goes is in the file
				asked++
			}
		case asked <= 3:
			// This watch comes behind the first list.
			if isResource && r.URL.Query().Has("watch") && r.URL.Query().Get("resourceVersion") != "" {
				listed[resource] = true
			}
		case isResource && !isThere:
			return &metav1.Status{Status: "Failure", Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "no"}
		case resource == "movess" && asked <= 8: // not listed yet
			return &metav1.Status{Status: "Failure", Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: "no"}
		case isResource:
			if followed[resource] = true; resource == "movess" && moved == 0 {
				moved = asked
			}
		case r.URL.Path == "/apis/shaky.example.com/v1" && asked%2 == 0:
			return &metav1.Status{Status: "Failure", Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: "no"}
		}
		if followed["comess"] && followed["movess"] && asked > moved+150 {
			stop()
		}
		return nil
	})
	got := say(ctx, "run", "--all", "--kubeconfig", config, "--db", filepath.Join(t.TempDir(), "informers.db"))
	for text, want := range map[string]int{
		`msg="No longer followed" resource="goess.goes.example.com (unstructured)" because="the server no longer serves it"`: 1,
		`msg="Followed in another version" resource="movess.moves.example.com (unstructured)" version=v2`:                    1,
		`msg="No longer followed"`:          1,
		`msg="Followed in another version"`: 1,
		`msg="Left out"`:                    0, // that of shaky is followed
		"level=ERROR":                       0,
		`msg="Dropped from the file, it is followed in another version" resource="movess.moves.example.com (unstructured)" version=v1`: 1,
		`msg="Deleted in the file, the server no longer serves it" resource="goess.goes.example.com (unstructured)"`:                   1,
	} {
		if n := strings.Count(got.Err, text); n != want || got.Code != 0 {
			t.Errorf("exit code %d, %d times, want %d: %s\n%s", got.Code, n, want, text, got.Err)
		}
	}
	_, moving, _ := strings.Cut(got.Err, `msg="Followed in another version"`)
	next, dropped := strings.Index(moving, `msg=Listed resource="movess`), strings.Index(moving, "it is followed in another version")
	if next < 0 || dropped < next {
		t.Errorf("the version before is dropped before the next one is listed:\n%s", got.Err)
	}
}

// TestRunCompletes checks that a shell completes the resources that the server has and
// run can follow.
func TestRunCompletes(t *testing.T) {
	config := runServer(t, func(*http.Request) *metav1.Status { return nil })
	for _, test := range []struct{ args, want string }{
		{"run|", "pods\nsecrets\n"},
		{"run|po", "pods\n"},
		{"run|pods|", "secrets\n"},
		{"run|pods,s", "pods,secrets\n"},
		{"run|--all|--exclude|s", "secrets\n"},
		{"run|x", ""},
	} {
		args := append([]string{"__complete", "run", "--kubeconfig", config}, strings.Split(test.args, "|")[1:]...)
		got := say(t.Context(), args...)
		words, _, ok := strings.Cut(got.Out, "_activeHelp_ from http://127.0.0.1:")
		if words != test.want || !ok {
			t.Errorf("%q: %q %s, want %q", args, got.Out, got.Err, test.want)
		}
	}
	got := say(t.Context(), "__complete", "run", "--kubeconfig", filepath.Join(t.TempDir(), "none"), "")
	if !strings.HasPrefix(got.Out, "_activeHelp_ ") {
		t.Errorf("without a kubeconfig: %q", got.Out)
	}
}

// TestRunAllFirstLists checks that run --all makes many first lists at a time, and not
// all.
func TestRunAllFirstLists(t *testing.T) {
	const most, all = 8, 30
	of := resources{}
	for i := range all {
		of["v1"] = append(of["v1"], metav1.APIResource{Name: fmt.Sprintf("pods%d", i), Namespaced: true, Kind: "Pod", Verbs: metav1.Verbs{"list", "watch"}})
	}
	var mu sync.Mutex
	now, highest := 0, 0
	many := make(chan struct{})
	config := runServerOf(t, of, func(r *http.Request) *metav1.Status {
		if !strings.HasPrefix(r.URL.Path, "/api/v1/pods") || r.URL.Query().Get("limit") == "1" {
			return nil // progress counts them
		}
		mu.Lock()
		if now++; now > highest {
			highest = now
			if highest == most { // one more would come now
				time.AfterFunc(200*time.Millisecond, func() { close(many) })
			}
		}
		mu.Unlock()
		select {
		case <-many:
		case <-r.Context().Done():
		}
		mu.Lock()
		defer mu.Unlock()
		now--
		return nil
	})
	got := say(t.Context(), "run", "--all", "--once", "--kubeconfig", config, "--db", filepath.Join(t.TempDir(), "informers.db"))
	if got.Code != 0 || highest != most {
		t.Errorf("exit code %d, %d lists at a time, want %d: %s", got.Code, highest, most, got.Err)
	}
}

// TestRunTakesDefinitionsAlong checks that run follows the definitions of custom
// resources with one, and goes on where they may not be listed.
func TestRunTakesDefinitionsAlong(t *testing.T) {
	of := withOne("example.com/v1", metav1.APIResource{Name: "widgets", SingularName: "widget", Namespaced: true, Kind: "Widget"})
	for name, test := range map[string]struct {
		args    []string
		refused bool
		holds   bool
	}{
		"custom resource": {[]string{"widgets", "-n", "default", "-l", "app=web"}, false, true},
		"refused":         {[]string{"widgets"}, true, false},
		"pods":            {[]string{"pods"}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			config := runServerOf(t, of, func(r *http.Request) *metav1.Status {
				if !test.refused || !strings.HasSuffix(r.URL.Path, "/customresourcedefinitions") {
					return nil
				}
				return &metav1.Status{Status: "Failure", Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "no"}
			})
			path := filepath.Join(t.TempDir(), "informers.db")
			got := say(t.Context(), append([]string{"run", "--once", "--kubeconfig", config, "--db", path}, test.args...)...)
			said := strings.Contains(got.Err, "customresourcedefinitions.apiextensions.k8s.io are not followed, so that custom resources have no columns: no")
			if got.Code != 0 || said != test.refused {
				t.Errorf("exit code %d, %s", got.Code, got.Err)
			}
			info := say(t.Context(), "info", "--db", path)
			if holds := strings.Contains(info.Out, "\ncustomresourcedefinitions.apiextensions.k8s.io   -           -  "); holds != test.holds {
				t.Errorf("holds the definitions: %t, want %t\n%s", holds, test.holds, info.Out)
			}
		})
	}
}

// TestRunKeepsLogOfGone checks that run --all deletes the objects of a resource that the
// server no longer serves, and keeps the log for its age: what was lost can be seen.
func TestRunKeepsLogOfGone(t *testing.T) {
	config := runServerOf(t, withOne("example.com/v1", metav1.APIResource{Name: "wheels", SingularName: "wheel", Namespaced: true, Kind: "Wheel"}),
		func(*http.Request) *metav1.Status { return nil })
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}
	gadgets := store.Scope{Cluster: "kube-system/one", Resource: "gadgets.example.com", Kind: kind, Form: store.Unstructured}
	fillScopeAt(t, db, nil, gadgets, "3", gadget("a", "one", map[string]any{"phase": "Ready"}), gadget("a", "two", nil))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	before := time.Now()

	run := func(now time.Time) said {
		t.Helper()
		var out, errOut bytes.Buffer
		code := cli.MainWith(t.Context(), genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut},
			[]string{"run", "--all", "--once", "--kubeconfig", config, "--db", path}, func() time.Time { return now })
		if code != 0 {
			t.Fatalf("exit code %d, %s%s", code, out.String(), errOut.String())
		}
		return said{out.String(), errOut.String(), code}
	}
	for range 2 { // the second run finds it as the first has left it
		run(time.Now())
		for _, test := range []struct{ args, want string }{
			{"query gadgets", `unknown resource "gadgets"`},
			{"info", "of which the log is left: 1"},
			{"history gadgets --deleted -o name", "gadget.example.com/one"},
			{"query gadgets --at " + before.UTC().Format(time.RFC3339Nano) + " -o json", `"phase": "Ready"`},
			{"query gadgets --at " + before.UTC().Format(time.RFC3339Nano) + " -o name", "gadget.example.com/one\ngadget.example.com/two\n"},
			{"query pods --at " + time.Now().UTC().Format(time.RFC3339Nano), ""},
			{"query gadgets --at " + time.Now().UTC().Format(time.RFC3339Nano), "nothing found in "},
		} {
			got := sayAt(t.Context(), time.Now(), append(strings.Fields(test.args), "--db", path)...)
			if !strings.Contains(got.Out+got.Err, test.want) || strings.Contains(got.Err, "to be listed again") {
				t.Errorf("%s: exit code %d\n%s%s", test.args, got.Code, got.Out, got.Err)
			}
		}
	}
	got := run(time.Now().Add(2 * time.Hour))
	if info := say(t.Context(), "info", "--db", path, "-o", "json"); strings.Contains(info.Out, "gadgets") {
		t.Errorf("an old log is still there: %s\n%s", info.Out, got.Err)
	}
}

// TestRunOfUnwatched checks that what the server cannot list and watch is not tried for
// ever if it is named: the error names the resource and the verbs that are missing.
func TestRunOfUnwatched(t *testing.T) {
	config := runServerOf(t, resources{"v1": {
		{Name: "pods", SingularName: "pod", Namespaced: true, Kind: "Pod", Verbs: metav1.Verbs{"list", "watch"}},
		{Name: "bindings", SingularName: "binding", Namespaced: true, Kind: "Binding", Verbs: metav1.Verbs{"create"}},
		{Name: "componentstatuses", SingularName: "componentstatus", Kind: "ComponentStatus", ShortNames: []string{"cs"}, Verbs: metav1.Verbs{"get", "list"}},
	}}, func(r *http.Request) *metav1.Status {
		if strings.HasSuffix(r.URL.Path, "s") && r.URL.Query().Get("watch") != "" {
			return &metav1.Status{Status: "Failure", Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed, Message: "the server does not allow this method on the requested resource"}
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // else it goes on
	defer cancel()
	for args, want := range map[string]string{
		"bindings":         "bindings: the server cannot list and watch it",
		"pods cs":          "componentstatuses: the server cannot watch it",
		"cs --once":        "componentstatuses: the server cannot watch it",
		"bindings,cs,pods": "bindings: the server cannot list and watch it; componentstatuses: the server cannot watch it",
		"pods/log":         `"pods/log" is no resource`,
	} {
		path := filepath.Join(t.TempDir(), "informers.db")
		got := say(ctx, append([]string{"run", "--kubeconfig", config, "--db", path}, strings.Fields(args)...)...)
		line, _, _ := strings.Cut(got.Err, "\n")
		if got.Code == 0 || line != "informctl: "+want {
			t.Errorf("%s: exit code %d, %s", args, got.Code, got.Err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s: there is a file", args)
		}
	}
}
