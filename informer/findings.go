package informer

import "time"

// findings are what Status and audits report.
type findings struct {
	audited AuditStatus
	// an audit has found another history, and the list for it has not begun
	other    bool
	memory   string // why Backend is not used; "" if it is used or nil
	unusable bool   // Backend could not open the scope, which is not expected
	waits    waits
}

// waits are the errors because of which an informer has waited for its scope.
type waits struct {
	last string
	time time.Time // of last
	n    int
}
