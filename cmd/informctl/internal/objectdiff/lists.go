package objectdiff

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// mergeKeys are the fields that identify an element of a list for server-side apply or
// for a strategic merge patch, by the name of the list, and those of taints. One name may
// be that of several lists.
var mergeKeys = map[string][][]string{
	"addresses":                            {{"type"}},
	"conditions":                           {{"type"}},
	"healthConditions":                     {{"status"}},
	"hostAliases":                          {{"ip"}},
	"hostIPs":                              {{"ip"}},
	"managedFields":                        {{"manager", "operation", "apiVersion", "subresource"}},
	"nodeAllocatableResourceClaimStatuses": {{"resourceClaimName"}},
	"ownerReferences":                      {{"uid"}},
	"podIPs":                               {{"ip"}},
	"ports":                                {{"containerPort", "protocol"}, {"port", "protocol"}},
	"reservedFor":                          {{"uid"}},
	"taints":                               {{"key", "effect"}},
	"topologySpreadConstraints":            {{"topologyKey", "whenUnsatisfiable"}},
	"volumeDevices":                        {{"devicePath"}},
	"volumeMounts":                         {{"mountPath"}},
}

// nameKeys are those of most other lists, such as containers, env and volumes.
var nameKeys = []string{"name"}

// mergeDefaults are the values of absent fields.
var mergeDefaults = map[string]any{"protocol": "TCP", "subresource": ""}

// plainValue matches a value that needs no quotes in the key of an element.
var plainValue = regexp.MustCompile(`^[A-Za-z0-9_./:-]+$`)

// listDifferences appends the differences of two lists. Elements are those of the same
// key, as in containers[name=app]; in a list without keys, equal elements are the same
// and the others differ one by one. A new order alone is one difference, of path[*].
func listDifferences(found []Field, path string, a, b []any) []Field {
	name := path[strings.LastIndexAny(path, ".]")+1:]
	for _, keys := range append(slices.Clone(mergeKeys[name]), nameKeys) {
		x, ok := keyed(a, keys)
		if !ok {
			continue
		}
		if y, ok := keyed(b, keys); ok {
			return keyedDifferences(found, path, x, y)
		}
	}
	return alignedDifferences(found, path, a, b)
}

// keyedList is a list with the key of each element, such as name=app.
type keyedList struct {
	keys   []string
	byKey  map[string]map[string]any
	fields []string // that the keys are of
}

// keyed returns a list by the keys of its elements, if each has one of its own.
func keyed(list []any, fields []string) (out keyedList, ok bool) {
	out = keyedList{byKey: make(map[string]map[string]any, len(list)), fields: fields}
	for _, element := range list {
		of, ok := element.(map[string]any)
		if !ok {
			return out, false
		}
		var parts []string
		for _, field := range fields {
			v, is := of[field]
			if !is {
				v, is = mergeDefaults[field]
			}
			switch v.(type) {
			case string, bool, int64, float64:
			default:
				is = false
			}
			if !is {
				return out, false
			}
			text := fmt.Sprint(v)
			if !plainValue.MatchString(text) {
				text = fmt.Sprintf("%q", text)
			}
			parts = append(parts, field+"="+text)
		}
		key := strings.Join(parts, ",")
		if _, twice := out.byKey[key]; twice {
			return out, false
		}
		out.byKey[key] = of
		out.keys = append(out.keys, key)
	}
	return out, true
}

func (l keyedList) has(key string) bool {
	_, ok := l.byKey[key]
	return ok
}

func (l keyedList) text(key string) string { return value{l.byKey[key], true}.String() }

// brief returns the key of an element in JSON if it has parts of its own, as a container,
// and "" if all of it is as brief.
func (l keyedList) brief(key string) string {
	named, nested := map[string]any{}, false
	for field, v := range l.byKey[key] {
		if slices.Contains(l.fields, field) {
			named[field] = v
		}
		switch v.(type) {
		case map[string]any, []any:
			nested = true
		}
	}
	if !nested {
		return ""
	}
	return strings.TrimSuffix(value{named, true}.String(), "}") + ",…}"
}

// among returns the keys that are also in another list.
func (l keyedList) among(other keyedList) (common []string) {
	for _, key := range l.keys {
		if other.has(key) {
			common = append(common, key)
		}
	}
	return common
}

func keyedDifferences(found []Field, path string, a, b keyedList) []Field {
	for _, key := range a.keys {
		if !b.has(key) {
			found = append(found, Field{path + "[" + key + "]", a.text(key), absent, a.brief(key)})
		}
	}
	for _, key := range b.keys {
		at := path + "[" + key + "]"
		if a.has(key) {
			found = differences(found, at, value{a.byKey[key], true}, value{b.byKey[key], true})
		} else {
			found = append(found, Field{at, absent, b.text(key), b.brief(key)})
		}
	}
	if x, y := a.among(b), b.among(a); !slices.Equal(x, y) {
		found = append(found, Field{Path: path + "[*]", a: value{x, true}.String(), b: value{y, true}.String()})
	}
	return found
}

// maxAligned bounds the work for two lists whose elements have no keys, in pairs of
// elements. Longer ones are compared one by one.
const maxAligned = 1 << 18

func alignedDifferences(found []Field, path string, a, b []any) []Field {
	x, y := texts(a), texts(b)
	if slices.Equal(slices.Sorted(slices.Values(x)), slices.Sorted(slices.Values(y))) && !slices.Equal(x, y) {
		return append(found, Field{Path: path + "[*]", a: value{a, true}.String(), b: value{b, true}.String()})
	}
	i, j := 0, 0
	for _, p := range append(commonElements(x, y), [2]int{len(a), len(b)}) {
		for ; i < p[0] || j < p[1]; i, j = min(i+1, p[0]), min(j+1, p[1]) {
			was, is, at := value{}, value{}, i
			if i < p[0] {
				was = value{a[i], true}
			}
			if j < p[1] {
				is, at = value{b[j], true}, j
			}
			found = differences(found, fmt.Sprintf("%s[%d]", path, at), was, is)
		}
		i, j = p[0]+1, p[1]+1
	}
	return found
}

func texts(list []any) []string {
	out := make([]string, len(list))
	for i, element := range list {
		b, err := json.Marshal(element)
		if err != nil {
			b = fmt.Appendf(nil, "%d", i) // never, of what was JSON
		}
		out[i] = string(b)
	}
	return out
}

// commonElements returns the positions of the elements that a longest common subsequence
// of two lists has.
func commonElements(a, b []string) (pairs [][2]int) {
	first := 0
	for first < min(len(a), len(b)) && a[first] == b[first] {
		pairs = append(pairs, [2]int{first, first})
		first++
	}
	last := 0
	for last < min(len(a), len(b))-first && a[len(a)-1-last] == b[len(b)-1-last] {
		last++
	}
	x, y := a[first:len(a)-last], b[first:len(b)-last]
	if len(x)*len(y) <= maxAligned {
		// length[i][j] is that of the longest one of x[i:] and y[j:].
		length := make([][]int, len(x)+1)
		length[len(x)] = make([]int, len(y)+1)
		for i := len(x) - 1; i >= 0; i-- {
			length[i] = make([]int, len(y)+1)
			for j := len(y) - 1; j >= 0; j-- {
				if length[i][j] = max(length[i+1][j], length[i][j+1]); x[i] == y[j] {
					length[i][j] = length[i+1][j+1] + 1
				}
			}
		}
		for i, j := 0, 0; i < len(x) && j < len(y); {
			switch {
			case x[i] == y[j]:
				pairs = append(pairs, [2]int{first + i, first + j})
				i, j = i+1, j+1
			case length[i+1][j] >= length[i][j+1]:
				i++
			default:
				j++
			}
		}
	}
	for n := last; n > 0; n-- {
		pairs = append(pairs, [2]int{len(a) - n, len(b) - n})
	}
	return pairs
}
