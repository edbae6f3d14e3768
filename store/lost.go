package store

// Loser is implemented by Stores that can lose what they hold while they are open:
// with their file, or because it is wiped. Reads return why until the scope has been
// listed again.
type Loser interface {
	// Lost brings a value after each loss; one that was not received stands for those
	// after it, too. It is never closed.
	Lost() <-chan struct{}
}
