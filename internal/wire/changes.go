package wire

import (
	"encoding/json"
	"time"
)

// HistoryHead is the first line of a history.
type HistoryHead struct {
	Begins   time.Time `json:"begins"`   // of the first deletion that is kept
	Complete time.Time `json:"complete"` // from here on, all changes are kept
}

// HistoryLine is one change.
type HistoryLine struct {
	Key   string        `json:"key"`
	RV    string        `json:"rv,omitempty"`
	Since time.Time     `json:"since,omitzero"`
	Time  time.Time     `json:"time"`
	Old   *HistoryState `json:"old,omitempty"` // nil: there was no object
	New   *HistoryState `json:"new,omitempty"`
}

// HistoryState is a state of an object; without an Object it is not known.
type HistoryState struct {
	Object json.RawMessage `json:"object,omitempty"`
}

// ChangeLine is one change of a client that follows.
type ChangeLine struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
	// Old is the state before a MODIFIED, if it is known and the client asks for it.
	Old    json.RawMessage `json:"old,omitempty"`
	Inside bool            `json:"inside,omitempty"` // see informer.Event
	Listed bool            `json:"listed,omitempty"` // it may come from a list
}
