package objectdiff

import (
	"fmt"
	"regexp"
	"strings"
)

// Path is a path of fields as a person writes it, or as a difference has it:
// spec.replicas, spec.containers[name=app].image, metadata.annotations["example.com/a"].
// Where it names no element of a list, it means all.
type Path []string

const (
	fieldName = `[^.,\[\]\\]+`
	inBracket = `\[(?:"(?:[^"\\]|\\.)*"|[^"\]])+\]` // a key of a map or an element
	pathText  = `\.?` + fieldName + `(?:\.` + fieldName + `|` + inBracket + `)*`
)

var (
	pathPart = regexp.MustCompile(fieldName + `|` + inBracket)
	onePath  = regexp.MustCompile(pathText)
	allPaths = regexp.MustCompile(`^` + pathText + `(?:,` + pathText + `)*$`)
)

// ParsePaths parses lists of paths that commas separate.
func ParsePaths(lists []string) (all []Path, err error) {
	for _, list := range lists {
		if !allPaths.MatchString(list) {
			return nil, fmt.Errorf(`%q is no path of a field, as spec.replicas or metadata.annotations["example.com/a"]`, list)
		}
		for _, text := range onePath.FindAllString(list, -1) {
			all = append(all, pathPart.FindAllString(strings.ReplaceAll(text, "[*]", ""), -1))
		}
	}
	return all, nil
}

// Has reports whether a field of a difference is at the path or below it.
func (p Path) Has(field string) bool {
	left, fits := p.follow(field)
	return fits && left == 0
}

// Meets reports whether a field is at the path, below it or above it.
func (p Path) Meets(field string) bool {
	_, fits := p.follow(field)
	return fits
}

// follow reports whether one of the path and a field leads to the other, and how many
// parts of the path are left where the field ends.
func (p Path) follow(field string) (left int, fits bool) {
	for _, part := range pathPart.FindAllString(field, -1) {
		switch {
		case len(p) == 0:
			return 0, true
		case part == p[0]:
			p = p[1:]
		case !isElement(part) || part != "[*]" && isElement(p[0]):
			return 0, false
		}
	}
	return len(p), true
}

// isElement reports whether a part is an element of a list and no key of a map.
func isElement(part string) bool {
	return strings.HasPrefix(part, "[") && !strings.HasPrefix(part, `["`)
}
