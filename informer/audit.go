package informer

import "time"

// AuditStatus contains the results of an informer's audits.
type AuditStatus struct {
	Count    int       `json:"count"`         // completed since the start
	Last     time.Time `json:"last,omitzero"` // when the last one completed
	Objects  int       `json:"objects"`       // compared by the last one
	Findings int       `json:"findings"`      // of the last one
	// First is the first of these: the kind and the key.
	First string `json:"first,omitempty"`
	Total int    `json:"total"`           // findings of all audits
	Error string `json:"error,omitempty"` // why a later one failed
}
