// Package ratelimit recognizes requests that client-go's rate limiter has refused.
package ratelimit

import "strings"

// Refused reports whether client-go's rate limiter has refused a request, because the
// request would have waited longer than until the deadline of its context. client-go has
// no type for that error (k8s.io/client-go/rest, Request.tryThrottleWithInfo).
func Refused(err error) bool {
	return err != nil && strings.Contains(err.Error(), "client rate limiter Wait")
}
