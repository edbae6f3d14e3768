package objectdiff

import "time"

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

// ChangedField is a field with its values before and after, as JSON; those of a Secret
// are left out.
type ChangedField struct {
	Path string  `json:"path"`
	Old  *string `json:"old,omitempty"`
	New  *string `json:"new,omitempty"`
}

// String returns the field for a person.
func (p ChangedField) String() string {
	if p.Old == nil && p.New == nil {
		return p.Path
	}
	text := func(s *string) string {
		if s == nil {
			return absent
		}
		return *s
	}
	return p.Path + ": " + text(p.Old) + " -> " + text(p.New)
}
