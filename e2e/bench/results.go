package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// results is the content of benchmarks.json, from which the report is made.
type results struct {
	Groups []*group `json:"groups"` // in the order of the report
}

// group contains the results for one kind and number of objects.
type group struct {
	Kind    kind `json:"kind"`
	Objects int  `json:"objects"`
	// Kube is the version of the kube-apiserver, "" for the server of this command.
	Kube string `json:"kube,omitempty"`
	conditions
	served
	// ClientGo and Ours contain the figures of each round.
	ClientGo map[source][]float64 `json:"clientGo"`
	Ours     map[source][]float64 `json:"ours"`
}

// conditions are the conditions under which a group was measured.
type conditions struct {
	Machine string  `json:"machine"`
	Date    string  `json:"date"`
	Rounds  int     `json:"rounds"`
	Load    string  `json:"load"` // the load average before the command began
	Seconds float64 `json:"seconds"`
}

// lines returns the conditions as sentences of the report.
func (c conditions) lines() []string {
	return []string{
		"Machine: " + c.Machine + ".",
		"Date: " + c.Date + ".",
		fmt.Sprintf("Rounds: %d.", c.Rounds),
		"Load average before: " + c.Load + ".",
		fmt.Sprintf("Changes at a rate: for %g s.", c.Seconds),
	}
}

// same reports whether the results of one group replace those of the other.
func (g *group) same(other *group) bool {
	return g.Kind.name == other.Kind.name && g.Objects == other.Objects && (g.Kube == "") == (other.Kube == "")
}

// put adds a group and replaces an earlier one with the same kind, number and server.
func (r *results) put(g *group) {
	r.Groups = append(slices.DeleteFunc(r.Groups, g.same), g)
	r.sort()
}

// sort orders the groups as in the report: first those of this command's server by kind,
// then those of a kube-apiserver, smaller numbers first.
func (r *results) sort() {
	place := func(g *group) int {
		return slices.IndexFunc(kinds(), func(k kind) bool { return k.name == g.Kind.name })
	}
	slices.SortStableFunc(r.Groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(min(len(a.Kube), 1), min(len(b.Kube), 1)), cmp.Compare(place(a), place(b)), cmp.Compare(a.Objects, b.Objects))
	})
}

func resultsFile(dir string) string { return filepath.Join(dir, "benchmarks.json") }

// readResults reads the results of an earlier run. It keeps figures that no row uses. The
// error wraps fs.ErrNotExist if there is no file.
func readResults(dir string) (r results, err error) {
	text, err := os.ReadFile(resultsFile(dir))
	if err != nil {
		return r, fmt.Errorf("read earlier results: %w", err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("read earlier results: %s: %w", resultsFile(dir), err)
	}
	r.sort()
	return r, nil
}

var numbers = regexp.MustCompile(`\[[^][{}"]+\]`)

// write writes benchmarks.json. All rounds of a figure are on one line.
func (r *results) write(dir string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	text = numbers.ReplaceAllFunc(text, func(list []byte) []byte { return bytes.Join(bytes.Fields(list), []byte(" ")) })
	if err := os.WriteFile(resultsFile(dir), append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}

// MarshalText implements encoding.TextMarshaler. The text is the name of the kind.
func (k kind) MarshalText() ([]byte, error) { return []byte(k.name), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *kind) UnmarshalText(name []byte) (err error) {
	*k, err = kindOf(string(name))
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (s source) MarshalText() ([]byte, error) { return []byte(s.scenario + "." + s.figure), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *source) UnmarshalText(text []byte) error {
	var ok bool
	if s.scenario, s.figure, ok = strings.Cut(string(text), "."); !ok {
		return fmt.Errorf("figure %q is not named scenario.figure", text)
	}
	return nil
}
