package objectdiff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Compose returns the fields that two changes, one after the other, have changed
// together. One that is again as it was is not among them.
func Compose(first, second []ChangedField) []ChangedField {
	out := slices.Clone(first)
	for _, f := range second {
		out = composed(out, f)
	}
	return slices.DeleteFunc(out, func(f ChangedField) bool { return bytes.Equal(f.Old, f.New) })
}

// composed adds a field to those that were changed before.
func composed(out []ChangedField, f ChangedField) []ChangedField {
	if i := slices.IndexFunc(out, func(e ChangedField) bool { return isAt(e.Path, f.Path) }); i >= 0 {
		if rest := f.Path[len(out[i].Path):]; rest == "" {
			out[i].New = f.New
		} else {
			out[i].New = patched(out[i].New, rest, f.New)
		}
		return out
	}
	// What was changed inside of it is changed with it.
	out = slices.DeleteFunc(out, func(e ChangedField) bool {
		inside := isAt(f.Path, e.Path)
		if inside {
			f.Old = patched(f.Old, e.Path[len(f.Path):], e.Old)
		}
		return inside
	})
	return append(out, f)
}

// patched returns a value in which what is at a path has another value, nil for none. It
// returns the value as it is if the path does not lead through it.
func patched(in json.RawMessage, path string, to json.RawMessage) json.RawMessage {
	var whole, value any
	err := utiljson.Unmarshal(in, &whole)
	if err == nil && to != nil {
		err = utiljson.Unmarshal(to, &value)
	}
	if err != nil {
		return in
	}
	whole, ok := patch(whole, pathPart.FindAllString(path, -1), value, to != nil)
	out, err := json.Marshal(whole)
	if err != nil || !ok {
		return in
	}
	return out
}

// patch sets what is at the parts of a path, or removes it unless is is set. It returns
// false if the path does not lead through the value.
func patch(in any, parts []string, to any, is bool) (out any, ok bool) {
	if len(parts) == 0 {
		return to, true
	}
	part, rest := parts[0], parts[1:]
	switch in := in.(type) {
	case map[string]any:
		name := part
		if key, err := strconv.Unquote(strings.Trim(part, "[]")); err == nil {
			name = key
		}
		if len(rest) == 0 && !is {
			delete(in, name)
			return in, true
		}
		in[name], ok = patch(in[name], rest, to, is)
		return in, ok
	case []any:
		if part == "[*]" {
			return reordered(in, to)
		}
		i := slices.IndexFunc(in, func(element any) bool { return hasKey(element, part) })
		switch {
		case i < 0 && len(rest) == 0 && is:
			return append(in, to), true
		case i < 0:
			return in, false
		case len(rest) == 0 && !is:
			return slices.Delete(in, i, i+1), true
		}
		in[i], ok = patch(in[i], rest, to, is)
		return in, ok
	}
	return in, false
}

// reordered returns a list whose elements are in the order of a difference of path[*],
// which has their keys or, if they have none, themselves. Others stay where they are:
// they were added or removed beside it. It returns false if an element is not there.
func reordered(in []any, order any) (out []any, ok bool) {
	of, _ := order.([]any)
	isTaken := map[int]bool{}
	from := make([]int, len(of)) // where each of them is now
	for n, key := range of {
		text, isText := key.(string)
		from[n] = -1
		for i, element := range in {
			if !isTaken[i] && (reflect.DeepEqual(element, key) || isText && hasKey(element, "["+text+"]")) {
				from[n], isTaken[i] = i, true
				break
			}
		}
		if from[n] < 0 {
			return in, false
		}
	}
	out = slices.Clone(in)
	for n, at := range slices.Sorted(maps.Keys(isTaken)) {
		out[at] = in[from[n]]
	}
	return out, true
}

// hasKey reports whether an element of a list has the key in a path, as [type=Ready].
func hasKey(element any, part string) bool {
	of, ok := element.(map[string]any)
	for pair := range strings.SplitSeq(strings.Trim(part, "[]"), ",") {
		field, text, isPair := strings.Cut(pair, "=")
		if plain, err := strconv.Unquote(text); err == nil {
			text = plain
		}
		if v, is := of[field]; !ok || !isPair || !is && mergeDefaults[field] != text || is && fmt.Sprint(v) != text {
			return false
		}
	}
	return true
}
