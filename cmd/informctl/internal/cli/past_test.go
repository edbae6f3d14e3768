package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/informctl/informctl/cmd/informctl/internal/cli"
	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// sayAt is say at another moment than now: a log has the times at which it was written.
func sayAt(ctx context.Context, at time.Time, args ...string) said {
	var out, errOut bytes.Buffer
	code := cli.MainWith(ctx, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}, args, func() time.Time { return at })
	return said{out.String(), errOut.String(), code}
}

// TestPastOfUnfollowed checks that a command that is asked for a moment at which nothing
// followed the file any more says so, and that no command takes a moment that is to come.
func TestPastOfUnfollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	writeHistory(t, path)
	written := time.Now()
	later := written.Add(3 * time.Hour)
	const old = "informctl: as of 3h ago; nothing follows this file\n"
	stamp := func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
	for name, tt := range map[string]struct {
		args []string
		code int
		want string // all of standard error, but the counts of diff and a time at the end
	}{
		"query, behind the last state":   {[]string{"query", "pods", "--at", "1h"}, 0, old},
		"dump, behind the last state":    {[]string{"dump", "pods", "--at", stamp(later)}, 0, old},
		"query, a resource version":      {[]string{"query", "pods", "--at", "12"}, 0, ""},
		"diff":                           {[]string{"diff", path, "pods", "--since", "1h"}, 0, old},
		"diff, from a resource version":  {[]string{"diff", path, "pods", "--since", "12"}, 1, old},
		"history":                        {[]string{"history", "pods"}, 0, old},
		"history, up to behind the last": {[]string{"history", "pods", "--until", "1h"}, 0, old},
		"history, up to before the last": {[]string{"history", "pods", "--until", stamp(written.Add(-time.Hour))}, 0, "informctl: nothing found in " + path + "\ninformctl: pods: the log begins at "},
		"query, to come": {
			[]string{"query", "pods", "--at", "2099-01-02T15:04:05Z"},
			64,
			"informctl: --at: 2099-01-02T15:04:05Z is in the future; it is " + later.UTC().Format(time.RFC3339) + "\n",
		},
		"diff, to come":    {[]string{"diff", path, "--since", "2099-01-02T15:04:05Z"}, 64, "--since: 2099-01-02T15:04:05Z is in the future; it is "},
		"history, to come": {[]string{"history", "--since", "2099-01-02T15:04:05Z"}, 64, "--since: 2099-01-02T15:04:05Z is in the future; it is "},
	} {
		t.Run(name, func(t *testing.T) {
			args := tt.args
			if args[0] != "diff" {
				args = append(args, "--db", path)
			}
			got := sayAt(t.Context(), later, args...)
			text := got.Err
			if tt.args[0] == "diff" && tt.code < 64 {
				lines := strings.SplitAfter(text, "\n")
				text = strings.Join(lines[:len(lines)-2], "")
			}
			isSaid := text == tt.want || strings.HasSuffix(tt.want, " ") && strings.HasPrefix(text, tt.want)
			if tt.code == 64 {
				isSaid = strings.Contains(text, tt.want)
			}
			if got.Code != tt.code || !isSaid {
				t.Errorf("exit code %d, %q, want %d, %q", got.Code, got.Err, tt.code, tt.want)
			}
		})
	}
}

// TestPastBetweenProcesses checks that a command that is asked for a moment between two
// processes says that nothing followed the file then, and at other moments does not.
func TestPastBetweenProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	scope := store.Scope{Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")}
	var moments []time.Time
	for _, b := range []store.Batch{
		{RV: "11", Changes: []store.Change{{Object: pod("a", "two", "web")}}},
		{RV: "12", Changes: []store.Change{{Key: "a/one", RV: "12"}}, CatchUp: true},
		{RV: "13", Changes: []store.Change{{Object: pod("a", "three", "web")}}},
	} {
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := openScope(t, db, scope)
		if len(moments) == 0 {
			load(t, s, "10", pod("a", "one", "web"))
			moments = append(moments, time.Now())
		}
		apply(t, s, b)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		moments = append(moments, time.Now())
	}
	const unfollowed = "informctl: as of 0s before that; nothing followed this file then\n"
	for i, want := range []string{"", unfollowed, ""} {
		at := moments[i].UTC().Format(time.RFC3339Nano)
		for _, args := range [][]string{{"query", "pods", "--at", at}, {"dump", "pods", "--at", at, "-o", "name"}, {"history", "pods", "--until", at}} {
			got := sayAt(t.Context(), time.Now(), append(args, "--db", path)...)
			// As on a fast disk.
			text := regexp.MustCompile(`as of \d+s`).ReplaceAllString(got.Err, "as of 0s")
			if i == 0 && args[0] == "history" {
				want = "informctl: nothing found in " + path + "\n"
			}
			if got.Code != 0 || text != want {
				t.Errorf("%q: exit code %d, %q, want %q", args, got.Code, text, want)
			}
		}
	}
}

// TestUntilWhatIsPrinted checks that a change is up to the time that is printed of it, in
// whole seconds.
func TestUntilWhatIsPrinted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	writeLog(t, db, "pods", "Pod", []runtime.Object{pod("a", "one", "web")}, store.Batch{RV: "11", Changes: []store.Change{{Key: "a/one", RV: "11"}}})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	var change struct{ Time time.Time }
	got := say(t.Context(), "history", "pods", "--db", path, "-o", "json")
	if err := json.Unmarshal([]byte(got.Out), &change); err != nil || change.Time.IsZero() {
		t.Fatalf("%v: %+v", err, got)
	}
	for second, want := range map[time.Time]int{change.Time: 2, change.Time.Add(-time.Second): 0} {
		at := second.UTC().Format(time.DateTime) // the zone that commands have here
		got := sayAt(t.Context(), time.Now().UTC(), "history", "pods", "--db", path, "--until", at, "--since", at)
		if n := strings.Count(got.Out, "\n"); n != want {
			t.Errorf("%d lines, want %d: %+v", n, want, got)
		}
	}
}

// TestPastOfFollowed checks that a moment of a file that is followed needs no note, and
// one after a connection was lost does.
func TestPastOfFollowed(t *testing.T) {
	const cutOff = "informctl: as of 120m ago; disconnected from the server, and informctl status says why\n"
	for name, cause := range map[string]string{"followed": "", "disconnected": "dial tcp 10.0.0.1:443: connection refused"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log.db")
			writeHistory(t, path)
			written := time.Now()
			later := written.Add(3 * time.Hour)
			statuses := []informer.Status{{
				Scope:  informer.ScopeStatus{ID: store.Scope{Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")}.ID()},
				Synced: true, CaughtUp: true, LastError: cause, Checkpoint: informer.CheckpointStatus{RV: "15", Time: written.Add(time.Hour)},
			}}
			holdServing(t, path, testKeys(t), func(h http.Handler) http.Handler {
				mux := http.NewServeMux()
				mux.Handle("/", h)
				mux.HandleFunc("/v1/status", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(statuses) })
				return mux
			})
			for _, args := range [][]string{
				{"query", "pods", "--at", "1h", "--db", path},
				{"diff", path, "pods", "--since", "1h"},
				{"history", "pods", "--db", path},
			} {
				got := sayAt(t.Context(), later, args...)
				if want := cause != ""; got.Code != 0 || strings.Contains(got.Err, cutOff) != want || strings.Contains(got.Err, "follow") {
					t.Errorf("%q: exit code %d, %q", args, got.Code, got.Err)
				}
			}
			got := sayAt(t.Context(), later, "query", "pods", "--at", written.UTC().Format(time.RFC3339Nano), "--db", path)
			if got.Code != 0 || got.Err != "" {
				t.Errorf("before it was lost: exit code %d, %q", got.Code, got.Err)
			}
		})
	}
}

// TestPastOfMemory checks that what reads the past from a copy of the file says so where
// the process holds a resource in memory.
func TestPastOfMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	writeHistory(t, path)
	later := time.Now().Add(3 * time.Hour)
	statuses := []informer.Status{{
		Scope:  informer.ScopeStatus{ID: store.Scope{Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")}.ID()},
		Synced: true, CaughtUp: true, Memory: "no key", Checkpoint: informer.CheckpointStatus{RV: "20", Time: later},
	}}
	holdServing(t, path, testKeys(t), func(h http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/", h)
		mux.HandleFunc("/v1/status", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(statuses) })
		return mux
	})
	const old = "informctl: as of 3h ago; what is newer is in memory only, and informctl status says why\n"
	for _, args := range [][]string{
		{"query", "pods", "--at", "1h", "--db", path},
		{"restore", "pods", "kept", "--at", "1h", "--db", path},
		{"diff", path, "pods", "--since", "1h"},
	} {
		if got := sayAt(t.Context(), later, args...); got.Code != 0 || !strings.Contains(got.Err, old) {
			t.Errorf("%q: exit code %d, %q", args, got.Code, got.Err)
		}
	}
	if got := sayAt(t.Context(), later, "query", "pods", "--db", path); got.Code != 0 || got.Err != "" {
		t.Errorf("what the process has: exit code %d, %q", got.Code, got.Err)
	}
}

// TestPastOfUnfollowedResources checks that resources that a process does not follow are
// one line.
func TestPastOfUnfollowedResources(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	writeHistory(t, path)
	holdServing(t, path, testKeys(t), func(h http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/", h)
		mux.HandleFunc("/v1/status", func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode([]informer.Status{{Scope: informer.ScopeStatus{ID: "other"}}})
		})
		return mux
	})
	later := time.Now().Add(3 * time.Hour)
	for args, want := range map[string]string{
		"history":      "informctl: as of 3h ago; nothing follows pods, secrets\n",
		"history pods": "informctl: as of 3h ago; nothing follows pods\n",
	} {
		if got := sayAt(t.Context(), later, append(strings.Fields(args), "--db", path)...); got.Code != 0 || got.Err != want {
			t.Errorf("%s: exit code %d, %q, want %q", args, got.Code, got.Err, want)
		}
	}
}

// TestPastOfMany checks that many resources without a state at a moment, or whose logs
// begin late, are one line, and that what has a state is printed.
func TestPastOfMany(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	writeLog(t, db, "pods", "Pod", []runtime.Object{pod("a", "one", "web")}, store.Batch{RV: "20"})
	for _, name := range []string{"ConfigMap", "Endpoints", "Event", "Service"} {
		writeLog(t, db, strings.ToLower(name)+"s", name, nil)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	got := sayAt(t.Context(), time.Now(), "dump", "--at", "15", "-o", "name", "--db", path)
	const left = "informctl: 4 resources are left out, which have no state at that moment, such as " +
		"configmaps is at resource version 10, resource version 15 is not reached\n"
	if want := (said{"pod/one\n", left, 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	got = sayAt(t.Context(), time.Now(), "history", "--since", "1h", "--db", path)
	if begin := "informctl: the logs of 5 resources begin later, the last at "; got.Code != 0 || !strings.Contains(got.Err, begin) || strings.Count(got.Err, "begin") != 1 {
		t.Errorf("%+v, want %s", got, begin)
	}
}

// TestPastIsTold checks that the moment at which a log begins, as an error and a note
// name it, is one that they are satisfied with.
func TestPastIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	writeHistory(t, path)
	later := time.Now().Add(time.Hour)
	for _, args := range [][]string{{"query", "pods", "--at", "2h"}, {"history", "pods", "--since", "2h"}, {"diff", path, "pods", "--since", "2h"}} {
		db := []string{"--db", path}
		if args[0] == "diff" {
			db = nil
		}
		got := sayAt(t.Context(), later, append(args, db...)...)
		_, begins, said := strings.Cut(got.Err, "the log begins at ")
		begins = strings.TrimSuffix(strings.Fields(begins + " .")[0], ",")
		if _, err := time.Parse(time.RFC3339, begins); err != nil || !said || args[0] != "history" && !strings.Contains(got.Err, "no state of "+later.Add(-2*time.Hour).Local().Format(time.RFC3339)) {
			t.Errorf("%q: %+v", args, got)
			continue
		}
		args[len(args)-1] = begins
		got = sayAt(t.Context(), later, append(args, db...)...)
		// There are differences if a second has passed while the file was written.
		if most := map[string]int{"diff": 1}[args[0]]; strings.Contains(got.Err, "begins") || got.Code > most {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

// TestRestoreOfSeveralScopes checks what restore prints of objects whose changes several
// scopes have, and that an object that only leaves one of them is not deleted.
func TestRestoreOfSeveralScopes(t *testing.T) {
	path, then := twoScopes(t)
	at := then.Format(time.RFC3339Nano)
	for name, tt := range map[string]struct {
		args []string
		code int
		want string // in the output or the error
	}{
		"of one scope":            {[]string{"pods", "db"}, 0, "\n    app: db\n"},
		"of both":                 {[]string{"pods", "same"}, 0, "\n    app: web\n"},
		"no longer matches":       {[]string{"pods", "web"}, 1, `pods "a/web" is there; --at prints`},
		"before it was changed":   {[]string{"pods", "web", "--at", at}, 0, "\n    app: web\n"},
		"before it was created":   {[]string{"pods", "new", "--at", at}, 1, `pods "new" was not there at ` + at + ": it was created at 2"},
		"there, then and now":     {[]string{"pods", "web", "--at", "16"}, 0, "\n    app: db\n"},
		"in no namespace of such": {[]string{"pods", "db", "-n", "b"}, 1, `no deletion of pods "b/db" is known: the log begins at 2`},
	} {
		t.Run(name, func(t *testing.T) {
			got := sayAt(t.Context(), time.Now(), append([]string{"restore", "--db", path}, tt.args...)...)
			if got.Code != tt.code || !strings.Contains(got.Out+got.Err, tt.want) || strings.Count(got.Err, "\n") > 1+tt.code {
				t.Errorf("%+v, want %d, %s", got, tt.code, tt.want)
			}
		})
	}
}

// TestRestoreAfterClockWentBack checks that of two deletions the later one in the log
// counts, also where the clock was set back between them.
func TestRestoreAfterClockWentBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	open := func() *bolt.DB {
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	db := open()
	deletion := func(rv string) store.Batch {
		return store.Batch{RV: rv, Changes: []store.Change{{Key: "a/one", RV: rv}}}
	}
	writeLog(t, db, "pods", "Pod", []runtime.Object{pod("a", "one", "web")}, deletion("11"))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	again := pod("a", "one", "db")
	again.UID, again.ResourceVersion = "another", "12"
	synctest.Test(t, func(t *testing.T) { // in which it is the year 2000
		db := open()
		s := openScope(t, db, store.Scope{Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")})
		apply(t, s, store.Batch{RV: "12", Changes: []store.Change{{Object: again}}})
		apply(t, s, deletion("13"))
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	})
	got := sayAt(t.Context(), time.Now(), "restore", "pods", "one", "--db", path)
	if got.Code != 0 || !strings.Contains(got.Out, "\n    app: db\n") {
		t.Errorf("%+v", got)
	}
}

// TestAgesOfThen checks that the ages of a state count from its moment, and so does what
// was changed within some time.
func TestAgesOfThen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := pod("a", "young", "web")
	p.CreationTimestamp = metav1.NewTime(time.Now().Add(-10 * time.Minute))
	s := openScope(t, db, store.Scope{Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")})
	load(t, s, "10", p)
	listed := time.Now()
	apply(t, s, store.Batch{RV: "12", Changes: []store.Change{{Key: "a/young", RV: "12"}}})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"10", listed.UTC().Format(time.RFC3339Nano)} {
		for _, command := range []string{"query pods", "query pods --since 30m", "dump pods"} {
			args := append(strings.Fields(command), "--no-headers", "--at", at, "--db", path)
			got := sayAt(t.Context(), listed.Add(2*time.Hour), args...)
			if got.Code != 0 || !strings.HasSuffix(got.Out, " 10m\n") {
				t.Errorf("%s --at %s: exit code %d, %s%s", command, at, got.Code, got.Out, got.Err)
			}
		}
	}
}

// TestPastBeforeIndex checks that a selection of a moment before an index was made needs
// no index.
func TestPastBeforeIndex(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.db")
	writeHistory(t, path)
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	node, err := index.Field("spec.nodeName")
	if err != nil {
		t.Fatal(err)
	}
	scope := store.Scope{Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")}
	s, err := db.Open(scope, store.Options{Codec: codec.ForKind(scope.Kind), Indexes: []index.Index{index.Namespace(), index.Label("app"), node}})
	if err != nil {
		t.Fatal(err)
	}
	apply(t, s, store.Batch{RV: "16"})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"-l app=db":                             "pod/kept\npod/gone\n",
		"-l app=web":                            "",
		"-n b":                                  "pod/gone\n",
		"--field-selector spec.nodeName=node-1": "pod/kept\npod/gone\n",
		"--field-selector spec.nodeName=node-2": "",
		"--field-selector spec.nodeName=node-1 -n a": "pod/kept\n",
		"-l app=db -n b": "pod/gone\n",
	} {
		args := append([]string{"query", "pods", "--at", "12", "-o", "name", "--db", path}, strings.Fields(args)...)
		if got := sayAt(t.Context(), time.Now(), args...); got.Code != 0 || got.Out != want {
			t.Errorf("%q: %+v, want %q", args, got, want)
		}
	}
	if got := sayAt(t.Context(), time.Now(), "diff", path, "--since", "12", "pods", "-n", "b"); got.Code != 1 || got.Out != "- pods b/gone\n+ pods b/new\n" {
		t.Errorf("diff: %+v", got)
	}
	asked := sayAt(t.Context(), time.Now(), "query", "pods", "--at", "12", "--index", "label:app=db", "--db", path)
	if asked.Code != 1 || !strings.Contains(asked.Err, `index "label:app" did not exist then`) {
		t.Errorf("an index that is asked for: %+v", asked)
	}
	now := sayAt(t.Context(), time.Now(), "query", "pods", "-l", "app=db", "--explain", "-o", "name", "--db", path)
	if now.Out != "pod/kept\n" || !strings.Contains(now.Err, "index label:app=db, ") {
		t.Errorf("now: %+v", now)
	}
}
