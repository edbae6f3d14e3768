package reflector

import (
	"context"
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// NoResource is the reason of an empty list, without a resource version, of a resource
// that the server does not serve any more.
const NoResource = "the server does not serve the resource"

// wasNoResource is the reason of the list after that one, which brings what there is.
const wasNoResource = "the server did not serve the resource"

// missing counts answers in a row by which the server does not serve the resource, for
// example because its CustomResourceDefinition was deleted.
type missing struct {
	since time.Time // of the first one
	n     int
	told  bool // the sink has received the empty list
}

// The server must not have served the resource for missingFor, in missingTries answers:
// while an API server starts, or an APIService or a definition is replaced, it answers
// like that for some time, and no object is gone.
const (
	missingFor   = 5 * time.Minute
	missingTries = 5
)

// missed notes the error of a step. A resource that the server has not served for
// missingFor is an empty collection. The next step is a list, which ends this state.
func (r *Reflector) missed(ctx context.Context, err error) error {
	if r.fake || !IsNoResource(err) {
		r.missing = missing{}
		return nil
	}
	if r.missing.n++; r.missing.n == 1 {
		r.missing.since = time.Now()
	}
	if r.missing.told || r.missing.n < missingTries || time.Since(r.missing.since) < missingFor {
		return nil
	}
	list, failed := r.opts.Sink.Relist(ctx, NoResource)
	if failed != nil {
		return failed
	}
	klog.FromContext(ctx).Info("The resource is gone, its objects count as deleted", "since", r.missing.since, "because", err.Error())
	defer func() { _ = list.Close() }()
	if err := list.Finish(ctx, ""); err != nil {
		return err
	}
	r.missing.told = true
	r.next, r.relist = toList, wasNoResource
	return nil
}

// IsNoResource reports whether the server has answered that it does not serve a resource.
// It does so with the text of Go's http.NotFound; another text is that of a proxy, which
// does not know.
func IsNoResource(err error) bool {
	var answer apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &answer) {
		return false
	}
	details := answer.Status().Details
	if details == nil {
		return true
	}
	for _, cause := range details.Causes {
		if cause.Type == metav1.CauseTypeUnexpectedServerResponse && strings.TrimSpace(cause.Message) != "404 page not found" {
			return false
		}
	}
	return details.Name == ""
}
