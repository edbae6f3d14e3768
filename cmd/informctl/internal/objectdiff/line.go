package objectdiff

import (
	"encoding/json"
	"time"
)

// Line is one line of history or of diff -o json. Its JSON names are stable.
type Line struct {
	Time time.Time `json:"time,omitzero"` // zero in diff
	// set if it was made between Since and Time
	Since           *time.Time     `json:"since,omitempty"`
	Change          string         `json:"change"` // created, updated or deleted
	Resource        string         `json:"resource"`
	Namespace       string         `json:"namespace,omitempty"`
	Name            string         `json:"name"`
	UID             string         `json:"uid,omitempty"`
	ResourceVersion string         `json:"resourceVersion,omitempty"`
	Managers        []string       `json:"managers,omitempty"`
	Fields          []ChangedField `json:"fields,omitempty"`
}

// ChangedField is a field with its values before and after; those of a Secret are left
// out.
type ChangedField struct {
	Path string          `json:"path"`
	Old  json.RawMessage `json:"old,omitempty"`
	New  json.RawMessage `json:"new,omitempty"`
}

// String returns the field for a person.
func (p ChangedField) String() string {
	if p.Old == nil && p.New == nil {
		return p.Path
	}
	text := func(v json.RawMessage) string {
		if v == nil {
			return absent
		}
		return string(v)
	}
	return p.Path + ": " + text(p.Old) + " -> " + text(p.New)
}
