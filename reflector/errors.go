package reflector

import (
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
)

// isAnswer reports whether an error is the server's answer to a watch: not an error of
// the connection, and not a rejection because of rate limits or permissions.
func isAnswer(err error) bool {
	switch {
	case utilnet.IsConnectionRefused(err), utilnet.IsConnectionReset(err), utilnet.IsProbableEOF(err), utilnet.IsTimeout(err),
		utilnet.IsHTTP2ConnectionLost(err), apierrors.HasStatusCause(err, causeDecoding),
		apierrors.IsTooManyRequests(err), apierrors.IsUnauthorized(err), apierrors.IsForbidden(err), errors.Is(err, errStalled):
		return false
	}
	return true
}

func isExpired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

func isTooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// causeDecoding is the cause of every error of client-go's stream decoder.
const causeDecoding = "ClientWatchDecoding"

// errorOf returns the error of an event. Behind the text of client-go's stream decoder
// there may be content of an object, which is left out. Errors of generated protobuf
// contain none.
func errorOf(e watch.Event) error {
	err := apierrors.FromObject(e.Object)
	text := undecodable(err)
	if text == "" {
		return err
	}
	if _, cause, _ := strings.Cut(err.Error(), text); strings.HasPrefix(cause, ": proto") {
		text += cause
	}
	status := err.(apierrors.APIStatus).Status()
	status.Message = "unable to decode an event from the watch stream: " + text
	status.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: causeDecoding, Message: status.Message}}}
	return &apierrors.StatusError{ErrStatus: status}
}

// isUndecodable recognises the error of client-go's stream decoder for an object that it
// cannot decode.
func isUndecodable(err error) bool { return undecodable(err) != "" }

// undecodable returns the text by which isUndecodable recognises an error
// (k8s.io/client-go/rest/watch, Decoder.Decode), else "". The cause alone is not enough,
// because a broken connection has the same cause.
func undecodable(err error) string {
	if !apierrors.HasStatusCause(err, causeDecoding) {
		return ""
	}
	for _, text := range []string{
		"unable to decode watch event", "unable to decode to metav1.WatchEvent",
		"got invalid watch event type", streaming.ErrObjectTooLarge.Error(),
	} {
		if strings.Contains(err.Error(), text) {
			return text
		}
	}
	return ""
}

// suggestedDelay returns the server's Retry-After.
func suggestedDelay(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return time.Duration(seconds) * time.Second
}
