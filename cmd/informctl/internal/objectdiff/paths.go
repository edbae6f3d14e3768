package objectdiff

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Path is a path of fields as a person writes it, or as a difference has it:
// spec.replicas, spec.containers[name=app].image, metadata.annotations["example.com/a"].
// Where it names no element of a list, it means all.
type Path []string

const (
	fieldName = `[^.,\[\]\\{}$\s]+`
	inBracket = `\[(?:"(?:[^"\\]|\\.)*"|[^"\]?])+\]` // a key of a map or an element
	pathText  = `\.?` + fieldName + `(?:\.` + fieldName + `|` + inBracket + `)*`
)

var (
	pathPart = regexp.MustCompile(fieldName + `|` + inBracket)
	onePath  = regexp.MustCompile(pathText)
	allPaths = regexp.MustCompile(`^` + pathText + `(?:\s*,\s*` + pathText + `)*$`)
)

// ParsePaths parses lists of paths that commas separate. A single one may be written as a
// JSONPath, {.spec.replicas}, as other options take it.
func ParsePaths(lists []string) (all []Path, err error) {
	for _, given := range lists {
		list := strings.TrimSpace(given)
		if inner, ok := strings.CutPrefix(list, "{"); ok && strings.HasSuffix(inner, "}") {
			list = strings.TrimSpace(strings.TrimSuffix(inner, "}"))
		}
		list = strings.TrimPrefix(list, "$")
		if !allPaths.MatchString(list) {
			return nil, fmt.Errorf(`%q is no path of a field, as spec.replicas or metadata.annotations["example.com/a"]`, given)
		}
		for _, text := range onePath.FindAllString(list, -1) {
			path := pathPart.FindAllString(strings.ReplaceAll(text, "[*]", ""), -1)
			for i, part := range path {
				path[i] = asInDifference(part)
			}
			all = append(all, path)
		}
	}
	return all, nil
}

// asInDifference returns a part of a path as the path of a difference has it. A person
// may quote the key of a map that needs no quotes, in either kind of them, and leave
// them out where one needs them, as in metadata.labels.pod-template-hash.
func asInDifference(part string) string {
	if isElement(part) {
		return part
	}
	key := part
	if inside, isQuoted := strings.CutPrefix(part, `["`); isQuoted {
		unquoted, err := strconv.Unquote(`"` + strings.TrimSuffix(inside, "]"))
		if err != nil {
			return part
		}
		key = unquoted
	} else if inside, isQuoted := strings.CutPrefix(part, "['"); isQuoted {
		key = strings.TrimSuffix(inside, "']")
	}
	if isPlain(key) {
		return key
	}
	return fmt.Sprintf("[%q]", key)
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
	return strings.HasPrefix(part, "[") && !strings.HasPrefix(part, `["`) && !strings.HasPrefix(part, "['")
}
