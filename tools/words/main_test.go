package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	wide := strings.Repeat("x", 87)
	tests := map[string]struct {
		source string
		want   []string // what each finding contains
	}{
		"fits":         {"package p\n\n// " + wide + "\nvar x int\n", nil},
		"too wide":     {"package p\n\n// " + wide + "x\nvar x int\n", []string{"f.go:3: the comment takes 91 columns, want 90"}},
		"behind a tab": {"package p\n\nfunc f() {\n\t// " + wide[4:] + "x\n}\n", []string{"f.go:4: "}},
		"an address":   {"package p\n\n// https://" + wide + "\nvar x int\n", nil},
		"a directive":  {"package p\n\n//go:generate " + wide + "\nvar x int\n", nil},
		"code":         {"package p\n\nvar x = \"" + wide + "\"\n", nil},
		"a phrase":     {"package p\n\n// x is for who reads.\nvar x int\n", []string{`f.go:3: "for who": name them`}},
		"in a block":   {"package p\n\n/*\nHandlers are told of it.\n*/\nvar x int\n", []string{`f.go:4: "are told of": a handler receives`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f.go")
			if err := os.WriteFile(path, []byte(tt.source), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := check(path)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.EqualFunc(got, tt.want, strings.Contains) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
