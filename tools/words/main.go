// Command words checks the comments of Go files: their width, and phrases that readers
// have stumbled over. It prints each finding and exits with 1 if there is one.
//
//	words FILE...
package main

import (
	"fmt"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"
)

// width is how many columns a comment may take, its indentation included; a tab is 4.
const width = 90

// phrases are what the comments do without, and what they say instead.
var phrases = []struct {
	found   *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\b(to|for|of|by|with|from|as) who\b`), "name them: a caller, a reader, a client"},
	{regexp.MustCompile(`\b[Ww]hom\b`), "name them: a caller, a reader, a client"},
	{regexp.MustCompile(`\b(is|are|was|were|be|been) told of\b`), "a handler receives a notification"},
	{regexp.MustCompile(`\bthat is none\b`), "say what it is not: not a valid key"},
	{regexp.MustCompile(`\bthere is to be\b|\bis there to be\b`), "subject, verb, object"},
}

func main() {
	found := false
	for _, path := range os.Args[1:] {
		lines, err := check(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		for _, line := range lines {
			found = true
			fmt.Println(line)
		}
	}
	if found {
		os.Exit(1)
	}
}

// check returns what is wrong with the comments of one file.
func check(path string) (findings []string, err error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	if _, err := parser.ParseFile(files, path, source, parser.PackageClauseOnly); err != nil {
		return nil, err
	}
	lines := strings.Split(string(source), "\n")
	file := token.NewFileSet().AddFile(path, -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, scanner.ScanComments)
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return findings, nil
		}
		if tok != token.COMMENT || strings.HasPrefix(text, "//go:") || strings.HasPrefix(text, "//nolint") {
			continue
		}
		at := file.Line(pos)
		for i, part := range strings.Split(text, "\n") {
			line := strings.ReplaceAll(lines[at-1+i], "\t", "    ")
			place := fmt.Sprintf("%s:%d", path, at+i)
			if n := utf8.RuneCountInString(line); n > width && !strings.Contains(part, "://") {
				findings = append(findings, fmt.Sprintf("%s: the comment takes %d columns, want %d at most", place, n, width))
			}
			for _, p := range phrases {
				if phrase := p.found.FindString(part); phrase != "" {
					findings = append(findings, fmt.Sprintf("%s: %q: %s", place, phrase, p.instead))
				}
			}
		}
	}
}
