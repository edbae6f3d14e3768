package top_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"

	"github.com/informctl/informctl/cmd/informctl/internal/top"
	"github.com/informctl/informctl/informer"
)

var update = flag.Bool("update", false, "write the expected screens anew")

// noon is the time of the first answer.
var noon = time.Date(2026, 1, 11, 12, 0, 0, 0, time.UTC)

// scope returns the status of a healthy informer, some seconds after noon.
func scope(after int, id, resource, namespace string, objects, events int) informer.Status {
	at := noon.Add(time.Duration(after) * time.Second)
	return informer.Status{
		Time: at, Persisted: true, File: "/var/cache/app/informers.db", FileBytes: 128 << 20, ProcessBytes: 40 << 20, MemoryBytes: int64(500 * objects),
		Scope: informer.ScopeStatus{
			ID: id, Resource: resource, APIVersion: "v1", Kind: "Thing", Namespace: namespace, Form: "typed",
		},
		Synced: true, CaughtUp: true, Start: "resumed", Resumes: 2,
		Objects: objects, Events: events, LastEvent: at.Add(-3 * time.Second), LastBookmark: at.Add(-40 * time.Second),
		Checkpoint: informer.CheckpointStatus{RV: "1844674", Time: at.Add(-3 * time.Second)},
		Commits:    &informer.CommitStatus{PendingBytes: int64(10 * objects), Last: at.Add(-time.Second), LastSeconds: 0.0123, Count: 120},
		Handlers:   []informer.HandlerStatus{{Type: "*controller.handler", Waiting: objects % 7, Synced: true}},
	}
}

// scopes returns the answer of a process some seconds after noon.
func scopes(after int) []informer.Status {
	full := scope(after, "4", "pods", "kube-system", 77, after)
	full.Scope.LabelSelector = "app.kubernetes.io/name=web,tier!=db"
	full.Commits.Degraded, full.Commits.Error = true, "write /var/cache/app/informers.db: no space left on device"
	first := scope(after, "5", "widgets.demo.informctl.dev", "", 0, 0)
	first.Synced, first.CaughtUp, first.Start, first.LastEvent, first.LastBookmark = false, false, "", time.Time{}, time.Time{}
	first.Listing, first.Listed, first.Behind = "nothing stored yet", 12345, "listing, 12345 objects so far: nothing stored yet"
	first.Checkpoint = informer.CheckpointStatus{Reason: "nothing stored yet"}
	return []informer.Status{
		scope(after, "1", "configmaps", "", 1200, after/2),
		scope(after, "2", "deployments.apps", "", 801, 12*after+after%5),
		scope(after, "3", "pods", "", 51234, 120*after*after),
		full, first,
	}
}

// many returns n scopes in n namespaces.
func many(n int) []informer.Status {
	all := make([]informer.Status, n)
	for i := range all {
		all[i] = scope(0, fmt.Sprint(i), "pods", fmt.Sprintf("team-%02d", i), i, 0)
	}
	return all
}

func size(width, height int) tea.Msg { return tea.WindowSizeMsg{Width: width, Height: height} }

func answer(after int, statuses ...informer.Status) tea.Msg {
	return top.Answer(noon.Add(time.Duration(after)*time.Second), statuses...)
}

func noAnswer(after int, text string) tea.Msg {
	return top.NoAnswer(noon.Add(time.Duration(after)*time.Second), errors.New(text))
}

var named = map[string]tea.KeyPressMsg{
	"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "space": {Code: ' ', Text: " "},
	"backspace": {Code: tea.KeyBackspace}, "pgdown": {Code: tea.KeyPgDown}, "pgup": {Code: tea.KeyPgUp},
	"end": {Code: tea.KeyEnd}, "home": {Code: tea.KeyHome}, "down": {Code: tea.KeyDown}, "up": {Code: tea.KeyUp},
	"ctrl+c": {Code: 'c', Mod: tea.ModCtrl}, "ctrl+u": {Code: 'u', Mod: tea.ModCtrl},
}

// keys returns the messages for keys, which are separated by spaces.
func keys(text string) (msgs []tea.Msg) {
	for _, key := range strings.Fields(text) {
		msg, ok := named[key]
		if !ok {
			msg = tea.KeyPressMsg{Code: []rune(key)[0], Text: key}
		}
		msgs = append(msgs, msg)
	}
	return msgs
}

func newModel(t *testing.T, statuses ...informer.Status) tea.Model {
	return top.NewModel(t.Context(), top.Options{File: "/var/cache/app/informers.db", Interval: time.Hour}, noon, statuses...)
}

// play sends messages to a model and returns the command of the last one.
func play(m tea.Model, msgs ...tea.Msg) (cmd tea.Cmd) {
	for _, msg := range msgs {
		_, cmd = m.Update(msg)
	}
	return cmd
}

// screen returns the text that the user sees.
func screen(m tea.Model) string {
	lines := strings.Split(ansi.Strip(m.View().Content), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

// TestScreens compares the screens after messages with testdata/NAME.txt.
func TestScreens(t *testing.T) {
	var seven []tea.Msg // answers, for a trend
	for i := 1; i <= 7; i++ {
		seven = append(seven, answer(i, scopes(i)...))
	}
	after := func(w, h int, more ...tea.Msg) []tea.Msg {
		return slices.Concat([]tea.Msg{size(w, h)}, seven, more)
	}
	gone := scopes(8)[1:]
	restarted := scopes(8)
	restarted[2].Events = 5
	twice := []informer.Status{scope(0, "1", "pods", "", 5, 0), scope(0, "1", "pods", "", 5, 0), scope(0, "2", "pods", "", 7, 0), {}}
	twice[1].Persisted, twice[1].Memory, twice[1].Commits, twice[1].MemoryBytes, twice[2].Scope.Form = false, "the scope is in use", nil, 0, "metadata"
	rude := scope(0, "1", "pods", "a\x1b[31mb", 5, 0)
	rude.LastError = "two\nlines\x1b]0;title\x07 and 日本"
	for name, msgs := range map[string][]tea.Msg{
		"first":          {size(80, 24)},
		"40x10":          after(40, 10),
		"80x24":          after(80, 24),
		"120x24":         after(120, 24),
		"220x24":         after(220, 24),
		"by-state":       after(80, 12, keys("s")...),
		"by-events":      after(120, 12, keys("s s s")...),
		"by-events-up":   after(120, 12, keys("s s s r")...),
		"by-lag":         after(80, 12, keys("<")...),
		"filtered":       after(80, 12, keys("/ P o d x backspace enter j")...),
		"filtering":      after(80, 12, keys("/ n o n e")...),
		"unfiltered":     after(80, 12, keys("/ n o n e enter esc")...),
		"paused":         append(after(80, 12, keys("p")...), answer(60, scopes(60)...)),
		"continued":      slices.Concat(after(80, 12, keys("space")...), []tea.Msg{answer(60, scopes(60)...)}, keys("space")),
		"lost":           after(120, 12, noAnswer(8, "nobody listens"), noAnswer(75, "nobody listens\nthere")),
		"found":          after(80, 12, noAnswer(8, "nobody listens"), answer(9, scopes(9)...)),
		"details":        after(80, 24, keys("j j j enter")...),
		"details-narrow": after(40, 30, keys("j j j j enter")...),
		"details-end":    after(60, 10, keys("j j j enter end")...),
		"details-back":   after(80, 12, keys("j j enter esc")...),
		"details-stay":   slices.Concat(after(80, 24, keys("s s enter")...), []tea.Msg{answer(8, append(many(1), scopes(8)...)...)}),
		"details-gone":   append(after(80, 12, keys("enter")...), answer(8, gone...)),
		"help":           after(80, 24, keys("?")...),
		"restarted":      after(80, 12, answer(8, restarted...), answer(9, restarted...)),
		"held-up":        append(after(80, 12), answer(30, scopes(7)...)),
		"nothing":        {size(80, 12), answer(1)},
		"twice":          {size(120, 12), answer(1, twice...)},
		"rude":           {size(80, 12), answer(1, rude)},
		"many":           slices.Concat([]tea.Msg{size(60, 12), answer(1, many(50)...)}, keys("pgdown pgdown k")),
		"many-end":       slices.Concat([]tea.Msg{size(60, 12), answer(1, many(50)...)}, keys("end up G home end")),
		"many-smaller":   {size(60, 30), answer(1, many(50)...), named["pgdown"], size(60, 9)},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, scopes(0)...)
			play(m, msgs...)
			path := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(screen(m)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(screen(m), "\n")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestFits checks that no page has lines longer than the screen, or more lines than the
// screen.
func TestFits(t *testing.T) {
	for _, page := range []string{"", "enter", "?", "/ a", "p s s r end"} {
		m := newModel(t, append(many(20), scopes(0)...)...)
		play(m, keys(page)...)
		play(m, noAnswer(1, "nobody listens"))
		for width := 0; width < 220; width += 1 + width/20 {
			for _, height := range []int{0, 1, 3, 10, 24} {
				play(m, size(width, height))
				lines := strings.Split(m.View().Content, "\n")
				if height > 0 && len(lines) != height {
					t.Errorf("%q at %dx%d: %d lines", page, width, height, len(lines))
				}
				for _, line := range lines {
					if n := ansi.StringWidth(line); n > width {
						t.Fatalf("%q at %dx%d: a line of %d: %q", page, width, height, n, line)
					}
				}
			}
		}
	}
}

// TestRatesAfterClockSetBack checks that rates go on where the clock of the process was
// set back.
func TestRatesAfterClockSetBack(t *testing.T) {
	at := func(after, events int) informer.Status { return scope(after, "1", "pods", "", 50, events) }
	m := newModel(t, at(0, 0))
	play(m, size(120, 24), answer(1, at(1, 77)), answer(2, at(-3599, 77)), answer(3, at(-3598, 97)))
	if got := screen(m); !strings.Contains(got, " 20 events/s") {
		t.Errorf("the rate is not 20:\n%s", got)
	}
}

// TestQuits checks which keys end the program, and when they do something else.
func TestQuits(t *testing.T) {
	for text, want := range map[string]bool{
		"q": true, "esc": true, "ctrl+c": true, "enter q": true, "? ctrl+c": true, "/ a ctrl+c": true, "/ a enter esc esc": true,
		"enter esc": false, "? esc": false, "/ q": false, "/ a esc": false, "/ a enter esc": false, "x": false,
	} {
		m := newModel(t, scopes(0)...)
		play(m, size(80, 24))
		cmd := play(m, keys(text)...)
		quits := false
		if cmd != nil {
			_, quits = cmd().(tea.QuitMsg)
		}
		if quits != want {
			t.Errorf("%s: quits %v, want %v", text, quits, want)
		}
	}
}
