package docs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// page is what links of a Markdown file and to it need to be known.
type page struct {
	anchors map[string]bool
	links   []string
}

var (
	heading = regexp.MustCompile(`^#{1,6} +(.+?)\s*$`)
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	inCode  = regexp.MustCompile("`[^`]*`")
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_ -]`) // from the text of a heading
)

// parse reads a Markdown file; what is in blocks of code is text.
func parse(text string) page {
	p := page{anchors: map[string]bool{}}
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if fenced {
			continue
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			p.anchors[anchor(m[1])] = true
		}
		for _, m := range link.FindAllStringSubmatch(inCode.ReplaceAllString(line, ""), -1) {
			p.links = append(p.links, m[1])
		}
	}
	return p
}

// anchor is what a link to a heading names. Headings of one page that are alike are not
// told apart.
func anchor(heading string) string {
	return strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

func TestAnchor(t *testing.T) {
	for heading, want := range map[string]string{
		"Limits":                             "limits",
		"401 and 403":                        "401-and-403",
		"It is not synced, or not caught up": "it-is-not-synced-or-not-caught-up",
		"`informctl run`":                    "informctl-run",
		"A controller on client-go":          "a-controller-on-client-go",
	} {
		if got := anchor(heading); got != want {
			t.Errorf("%q has the anchor %q, want %q", heading, got, want)
		}
	}
}

// TestLinks: each link from one of the project's pages to a file leads to one, and each
// to a heading of a page to one that is there.
func TestLinks(t *testing.T) {
	pages := map[string]page{} // by path
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || d.Name() == "testdata"):
			return filepath.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		b, err := os.ReadFile(path)
		pages[path] = parse(string(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for path, p := range pages {
		for _, target := range p.links {
			if strings.Contains(target, "://") {
				continue
			}
			count++
			file, fragment, _ := strings.Cut(target, "#")
			to := path
			if file != "" {
				to = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(to); errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: nothing is at %s", path, target)
			} else if err != nil {
				t.Error(err)
			}
			if fragment != "" && !pages[to].anchors[fragment] {
				t.Errorf("%s: there is no heading %s", path, target)
			}
		}
	}
	if len(pages) < 8 || count < 30 {
		t.Errorf("%d pages with %d links were found", len(pages), count)
	}
}
