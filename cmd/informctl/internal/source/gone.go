package source

import "github.com/informctl/informctl/store"

// ReasonGone is why a scope whose resource the server no longer serves has no resource
// version.
const ReasonGone = "the server no longer serves it"

// IsGone reports whether only the log is left of a scope that the server no longer
// serves.
func IsGone(i store.Info) bool {
	return i.Complete && i.Objects == 0 && i.Checkpoint.RV == "" && i.Checkpoint.Reason == ReasonGone
}
