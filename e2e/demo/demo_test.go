package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/informctl/informctl/postgres/pgtest"
)

// temporary sets a new directory for temporary files and checks at the end of the test
// that the demo left nothing in it.
func temporary(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Cleanup(func() {
		left, err := filepath.Glob(filepath.Join(dir, "informctl-demo-*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
}

func TestDemo(t *testing.T) {
	temporary(t)
	var out bytes.Buffer
	err := run(t.Context(), &out, options{Pods: 300})
	t.Logf("output:\n%s", &out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`(?m)^whole collections received +3 +0$`,
		`(?m)^objects in the file +501 +511$`,
		`(?m)^created meanwhile +- +30$`,
		`(?m)^changed meanwhile +- +50$`,
		`(?m)^deleted meanwhile +- +20$`,
		`(?m)^\.\.\. 511 objects in `,
		`(?m)^[0-9: -]+ deleted +pods `,
		`(?m)^\.\.\. 20 changes in `,
		`(?m)^The file equals the server: 310 pods and 200 widgets, `,
		`(?m)^NAMESPACE +NAME +READY +STATUS +RESTARTS +AGE$`,
		`(?m)^\.\.\. 311 lines in `,
	} {
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("the output has nothing like %s", want)
		}
	}
}

// TestPostgres plays the demo of PostgreSQL, in which the API server is listed once for
// each resource although the publisher is killed.
func TestPostgres(t *testing.T) {
	temporary(t)
	var out bytes.Buffer
	err := runPostgres(t.Context(), &out, options{Pods: 300})
	t.Logf("output:\n%s", &out)
	if errors.Is(err, pgtest.ErrNotInstalled) {
		t.Skipf("NOT TESTED: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`(?m)^The other publisher takes over +[0-9.]+s `,
		`(?m)^Warm: .* no list$`,
		`(?m)^[12] +pods .* published .* 310 `,
		`(?m)^deleted +20$`,
		`(?m)with the server's .* equal$`,
		`2 whole lists, one of each resource, and none after the kill\n$`,
	} {
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("the output has nothing like %s", want)
		}
	}
}

// interruptor cancels a context when text is written to it.
type interruptor struct {
	text   string
	cancel context.CancelFunc
}

func (i interruptor) Write(p []byte) (int, error) {
	if strings.Contains(string(p), i.text) {
		i.cancel()
	}
	return len(p), nil
}

// TestInterrupt checks that an interrupted demo stops its processes and removes its
// directory.
func TestInterrupt(t *testing.T) {
	temporary(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := run(ctx, interruptor{"SIGKILL", cancel}, options{Pods: leastPods})
	if !errors.Is(err, errInterrupted) {
		t.Errorf("got %v, want %v", err, errInterrupted)
	}
}

// closed is an output whose reader has gone away.
type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestErrors(t *testing.T) {
	temporary(t)
	if err := run(t.Context(), closed{}, options{Pods: leastPods}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v, want %v", err, os.ErrClosed)
	}
	if err := run(t.Context(), closed{}, options{Pods: leastPods - 1}); err == nil || !strings.Contains(err.Error(), "too few") {
		t.Errorf("got %v, want too few pods", err)
	}
}

// TestListed checks that a start that was to be warm, but has listed, is an error that
// says why.
func TestListed(t *testing.T) {
	for _, c := range []struct {
		name, said  string
		collections int
		want        string
	}{
		{"warm", `{"msg":"Caught up","resource":"pods"}` + "\n" + `{"msg":"Caught up","resource":"widgets"}`, 0, ""},
		{"listed", `{"msg":"Listed","resource":"pods","because":"too old resource version: 5 (7)"}` + "\n" +
			`{"msg":"Caught up","resource":"pods"}` + "\nno JSON\n" + `{"msg":"Caught up","resource":"widgets"}`, 1, "pods (too old resource version: 5 (7))"},
		{"not said", `{"msg":"Caught up","resource":"pods"}` + "\n" + `{"msg":"Caught up","resource":"widgets"}`, 1, "whole collections"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &follower{stderr: bufio.NewReader(strings.NewReader(c.said + "\n")), begin: time.Now()}
			if _, err := f.awaitCaughtUp(time.Minute); err != nil {
				t.Fatal(err)
			}
			err := (&demo{listed: f.listed, warm: figures{collections: c.collections}}).wasWarm()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), "has listed "+c.want+": ")) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestDiffers(t *testing.T) {
	pod := func(uid, rv, image string) string {
		return `{"kind":"Pod","metadata":{"namespace":"default","name":"a","uid":"` + uid + `","resourceVersion":"` + rv + `"},"spec":{"image":"` + image + `"}}`
	}
	for _, c := range []struct{ name, file, server, want string }{
		{"equal", pod("1", "2", "x"), pod("1", "2", "x"), ""},
		{"order of keys", `{"spec":{},"metadata":{"name":"a"}}`, `{"metadata":{"name":"a"},"spec":{}}`, ""},
		{"missing", "", pod("1", "2", "x"), "not in the file"},
		{"left over", pod("1", "2", "x"), "", "not on the server"},
		{"another object", pod("3", "2", "x"), pod("1", "2", "x"), "UID 3"},
		{"older", pod("1", "1", "x"), pod("1", "2", "x"), "resource version 1"},
		{"damaged", pod("1", "2", "y"), pod("1", "2", "x"), "same resource version 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file, err := decodeList(strings.NewReader(`{"apiVersion":"v1","items":[` + c.file + `],"kind":"List"}`))
			if err != nil {
				t.Fatal(err)
			}
			server, err := decodeList(strings.NewReader(`{"items":[` + c.server + `]}`))
			if err != nil {
				t.Fatal(err)
			}
			err = file.differs(server)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if _, err := decodeList(strings.NewReader(`{"items":[` + pod("1", "2", "x"))); err == nil {
		t.Error("a List that is cut off has no error")
	}
}
