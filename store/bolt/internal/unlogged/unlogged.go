// Package unlogged counts the changes that the log of a scope has left out: a commit had
// more than the bound of the log, or the scope keeps no history.
package unlogged

// State is the count of an open scope. Its owner does the locking.
type State struct{ Changes uint64 }

// Committed takes over what a commit has left out.
func (s *State) Committed(changes int) { s.Changes += uint64(changes) }

// Lost changes nothing: what was left out stays unknown to whoever reads the log.
func (s *State) Lost(error) {}
