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

// results is everything that the report is made of, as benchmarks.json has it.
type results struct {
	Groups []*group `json:"groups"` // in the order of the report
}

// group is the results of one kind and number of objects.
type group struct {
	Kind    kind `json:"kind"`
	Objects int  `json:"objects"`
	// Kube is the version of the kube-apiserver that was asked; "" is the server of
	// this command.
	Kube string `json:"kube,omitempty"`
	conditions
	served
	// ClientGo and Ours have the figures of each round.
	ClientGo map[source][]float64 `json:"clientGo"`
	Ours     map[source][]float64 `json:"ours"`
}

// conditions are those under which a group was measured.
type conditions struct {
	Machine string  `json:"machine"`
	Date    string  `json:"date"`
	Rounds  int     `json:"rounds"`
	Load    string  `json:"load"` // the load average before the command began
	Seconds float64 `json:"seconds"`
}

// lines are what the report says of the conditions.
func (c conditions) lines() []string {
	return []string{
		"Machine: " + c.Machine + ".",
		"Date: " + c.Date + ".",
		fmt.Sprintf("Rounds: %d.", c.Rounds),
		"Load average before: " + c.Load + ".",
		fmt.Sprintf("Changes at a rate: for %g s.", c.Seconds),
	}
}

// same reports whether results of one replace those of the other.
func (g *group) same(other *group) bool {
	return g.Kind.name == other.Kind.name && g.Objects == other.Objects && (g.Kube == "") == (other.Kube == "")
}

// put adds a group in the place of the same one.
func (r *results) put(g *group) {
	r.Groups = append(slices.DeleteFunc(r.Groups, g.same), g)
	r.sort()
}

// sort brings the groups into the order of the report: those of this command's
// server by kind, those of a kube-apiserver behind, small ones first.
func (r *results) sort() {
	place := func(g *group) int {
		return slices.IndexFunc(kinds(), func(k kind) bool { return k.name == g.Kind.name })
	}
	slices.SortStableFunc(r.Groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(min(len(a.Kube), 1), min(len(b.Kube), 1)), cmp.Compare(place(a), place(b)), cmp.Compare(a.Objects, b.Objects))
	})
}

func resultsFile(dir string) string { return filepath.Join(dir, "benchmarks.json") }

// readResults reads what an earlier run wrote. Figures that no row has any more are
// kept; an error wraps fs.ErrNotExist if there is no file.
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

// write writes benchmarks.json with the rounds of a figure in one line.
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

// MarshalText implements encoding.TextMarshaler: a kind is its name.
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
