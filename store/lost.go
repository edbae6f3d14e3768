package store

// Loser is implemented by Stores that can lose their content while they are open, because
// their file is lost or because the scope is wiped. Reads return the cause until the
// scope has been relisted.
type Loser interface {
	// Lost receives a value after each loss. A value that was not received also stands
	// for later losses. The channel is never closed.
	Lost() <-chan struct{}
}
