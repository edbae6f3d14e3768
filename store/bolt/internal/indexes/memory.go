package indexes

import (
	"maps"
	"slices"
	"unique"
)

// Memory contains the entries of one index. Its owner does the locking.
type Memory struct {
	keys   map[string]map[string]struct{} // value -> keys
	values map[string][]string            // key -> values
}

// NewMemory returns an index without entries.
func NewMemory() *Memory {
	return &Memory{keys: map[string]map[string]struct{}{}, values: map[string][]string{}}
}

// Set replaces the values of a key. Without values it removes the key.
func (m *Memory) Set(key string, values []string) {
	for _, value := range m.values[key] {
		delete(m.keys[value], key)
		if len(m.keys[value]) == 0 {
			delete(m.keys, value)
		}
	}
	delete(m.values, key)
	for _, value := range values {
		m.Add(key, value)
	}
}

// Add adds a value of a key.
func (m *Memory) Add(key, value string) {
	value = unique.Make(value).Value() // which does not keep the object that it is from
	m.values[key] = append(m.values[key], value)
	if m.keys[value] == nil {
		m.keys[value] = map[string]struct{}{}
	}
	m.keys[value][key] = struct{}{}
}

// Find returns the keys of some values, each key once and in no order.
func (m *Memory) Find(values []string) []string {
	if len(values) == 1 {
		return slices.Collect(maps.Keys(m.keys[values[0]]))
	}
	found := map[string]struct{}{}
	for _, value := range values {
		maps.Copy(found, m.keys[value])
	}
	return slices.Collect(maps.Keys(found))
}

// Values returns the sorted values that keys have.
func (m *Memory) Values() []string { return slices.Sorted(maps.Keys(m.keys)) }
