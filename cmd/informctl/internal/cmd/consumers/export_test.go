package consumers

import "github.com/informctl/informctl/durable"

// SharedErrors returns the notes of consumers.
func SharedErrors(found []durable.Status) []string { return sharedErrors(found) }
