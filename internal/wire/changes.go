package wire

import "encoding/json"

// ChangeLine is one change of a client that follows.
type ChangeLine struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
	// Old is the state before a MODIFIED, if it is known and the client asks for it.
	Old    json.RawMessage `json:"old,omitempty"`
	Inside bool            `json:"inside,omitempty"` // see informer.Event
	Listed bool            `json:"listed,omitempty"` // it may come from a list
}
