package cli_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestHistoryOfClockSetBack checks that history tells of the changes of a resource in the
// order in which they were made, and folds them in it, where the clock was set back.
func TestHistoryOfClockSetBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	state := func(rv int, phase corev1.PodPhase) *corev1.Pod {
		p := pod("a", "one", "web")
		p.ResourceVersion, p.Status.Phase = fmt.Sprint(rv), phase
		return p
	}
	write := func(after time.Duration, rv int, phase corev1.PodPhase) {
		synctest.Test(t, func(t *testing.T) { // each begins at the same time
			db, err := bolt.Open(path, bolt.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			s := openScope(t, db, store.Scope{Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")})
			if s.Checkpoint().RV == "" {
				load(t, s, "10", state(10, "Pending"))
			}
			<-time.After(after)
			apply(t, s, store.Batch{RV: fmt.Sprint(rv), Changes: []store.Change{{Object: state(rv, phase)}}})
		})
	}
	write(59*time.Minute, 11, "Running")
	write(5*time.Minute, 12, "Succeeded")
	history := func(args ...string) string {
		got := say(t.Context(), append([]string{"history", "pods", "--no-headers", "--db", path}, args...)...)
		if got.Code != 0 {
			t.Fatal(got.Err)
		}
		return got.Out
	}
	if got := history(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "2 updates of status: status.phase: \"Pending\" -> \"Succeeded\"") {
		t.Errorf("history prints\n%s", got)
	}
	last := func(text string) string { return text[strings.LastIndex(text[:len(text)-1], "\n")+1:] }
	all := history("-o", "json")
	if !strings.Contains(last(all), `"resourceVersion":"12"`) {
		t.Errorf("the last change is\n%s", last(all))
	}
	if got := history("-o", "json", "--tail", "1"); got != last(all) {
		t.Errorf("--tail prints\n%swant\n%s", got, last(all))
	}
}
