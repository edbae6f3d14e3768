package relay

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"github.com/informctl/informctl/store"
)

// Get implements rest.Getter. It also returns what is not written yet.
func (s *served) Get(ctx context.Context, name string, o *metav1.GetOptions) (runtime.Object, error) {
	rv, err := canonical(o.ResourceVersion)
	if err != nil {
		return nil, err
	}
	if rv != "" && rv != "0" {
		if err := s.reach(ctx, rv); err != nil {
			return nil, err
		}
	}
	key := name
	if namespace := request.NamespaceValue(ctx); namespace != "" {
		key = namespace + "/" + name
	}
	entries, err := s.Reader.Select(store.Query{Keys: []string{key}, At: s.At, Encoded: true})
	switch {
	case err != nil:
		return nil, unavailable(err)
	case len(entries) == 0:
		if _, _, err := s.present(); err != nil {
			return nil, err // what is not loaded yet is not deleted
		}
		return nil, apierrors.NewNotFound(s.Resource.GroupResource(), name)
	}
	out := &object{of: s, entry: entries[0]}
	if targetOf(ctx) != nil {
		if _, err := out.decoded(); err != nil {
			return nil, unavailable(err)
		}
	}
	return out, nil
}

// unavailable returns the answer to a client for an error of the store.
func unavailable(err error) error {
	switch {
	case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, store.ErrTrimmed), errors.Is(err, store.ErrLineage), errors.Is(err, store.ErrAhead):
		// Requests with a resource version have waited for it in reach. Only a continue
		// of another file can be ahead.
		return apierrors.NewResourceExpired(strings.TrimPrefix(err.Error(), "store: "))
	}
	status := apierrors.NewServiceUnavailable(err.Error())
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return status
}

// reachPatience is how long a request waits for a resource version that is to come, as in
// kube-apiserver's watch cache.
const reachPatience = 3 * time.Second

// canonical returns the resource version that a client means: the server takes 01 for 1.
func canonical(rv string) (string, error) {
	n, err := storage.APIObjectVersioner{}.ParseResourceVersion(rv)
	switch {
	case err != nil:
		return "", apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	case rv == "":
		return "", nil
	}
	return strconv.FormatUint(n, 10), nil
}

// reach waits until what is written is as new as rv.
func (s *served) reach(ctx context.Context, rv string) error {
	for end := time.Now().Add(reachPatience); ; {
		_, told, err := s.present()
		if err != nil {
			return err
		}
		if !isBelow(told, rv) {
			return nil
		}
		if s.writes == nil || time.Now().After(end) {
			want, _ := strconv.ParseUint(rv, 10, 64)
			has, _ := strconv.ParseUint(told, 10, 64)
			return storage.NewTooLargeResourceVersionError(want, has, 1)
		}
		wait := time.NewTimer(settleEvery)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return ctx.Err()
		}
		_ = s.writes.settle(ctx) // a failure is a warning
	}
}

// isBelow reports whether a resource version is lower than another one.
func isBelow(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// present returns the newest place that can be read, and the resource version up to which
// nothing has changed since.
func (s *served) present() (place store.Place, told string, err error) {
	if !s.At.IsZero() {
		return s.At, s.At.RV, nil
	}
	state, err := s.Reader.History()
	switch {
	case err != nil:
		return store.Place{}, "", unavailable(err)
	case state.Readable.IsZero():
		return store.Place{}, "", unavailable(s.unread(state))
	case state.Readable.Mark == state.Last.Mark:
		return state.Readable, state.Stored, nil
	}
	return state.Readable, state.Readable.RV, nil
}

// unread says why a log has no place that can be read.
func (s *served) unread(state store.LogState) error {
	if isListing(state) {
		return fmt.Errorf("the list of %s is not complete in a file", s.Scope)
	}
	return fmt.Errorf("%s: an object could not be stored, and the log does not reach back to before", s.Scope)
}

// isListing reports whether there is no place that can be read because a list is not
// complete.
func isListing(state store.LogState) bool { return state.Readable.IsZero() && state.Last.RV == "" }

// moment returns a place to read at whose state is not older than rv, or just it with
// exact, and the resource version that is told.
func (s *served) moment(ctx context.Context, rv string, exact bool) (place store.Place, told string, err error) {
	if rv != "" && rv != "0" {
		if err := s.reach(ctx, rv); err != nil {
			return store.Place{}, "", err
		}
	}
	if exact && !s.At.IsZero() && rv == s.At.RV {
		exact = false
	}
	if exact {
		return store.Place{RV: rv}, rv, nil
	}
	// What was received after the call began need not be told.
	received := s.Reader.Checkpoint().RV
	place, told, err = s.present()
	if rv != "" || s.writes == nil || err == nil && told == received {
		return place, told, err
	}
	_ = s.writes.settle(ctx) // a failure is a warning: what there is on the disk is told
	if err := ctx.Err(); err != nil {
		return store.Place{}, "", err
	}
	return s.present()
}

// continueToken is where a list goes on. Without a place it is the present one.
type continueToken struct {
	Version string `json:"v"`
	RV      string `json:"rv,omitempty"`
	Place   string `json:"place,omitempty"`
	After   string `json:"after"`
}

const tokenVersion = "informctl/1"

func (t continueToken) String() string {
	t.Version = tokenVersion
	b, _ := json.Marshal(t) // it cannot fail
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseToken(text string) (t continueToken, at store.Place, err error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(b, &t)
	}
	if err == nil && t.Version != tokenVersion {
		err = errors.New("it is of another server")
	}
	if err == nil && t.Place != "" {
		at, err = store.ParsePlace(t.Place)
	} else if t.RV != "" {
		at.RV = t.RV
	}
	if err != nil {
		return t, at, apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: continue key is not valid: %v", err))
	}
	return t, at, nil
}

// maxLimit is the highest number of items of a page; with more, there is a continue.
const maxLimit = 5000

// NewList implements rest.Lister.
func (s *served) NewList() runtime.Object { return &list{} }

// List implements rest.Lister. The list is of one moment, of which the log has the
// resource version.
func (s *served) List(ctx context.Context, o *metainternalversion.ListOptions) (runtime.Object, error) {
	to := targetOf(ctx)
	if to != nil && to.kind.Kind == "PartialObjectMetadata" {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
			Message: "you requested PartialObjectMetadata, but the requested object is a list",
		}}
	}
	p, err := s.selection(ctx, o)
	if err != nil {
		return nil, err
	}
	rv, err := canonical(o.ResourceVersion)
	if err != nil {
		return nil, err
	}
	limit := o.Limit
	var at store.Place
	var told, after string
	switch {
	case o.Continue != "":
		var token continueToken
		if token, at, err = parseToken(o.Continue); err != nil {
			return nil, err
		}
		if rv != "" && rv != "0" { // as k8s.io/apiserver/pkg/storage
			return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		if after, told = token.After, token.RV; at.IsZero() {
			at, told, err = s.present()
		}
	case rv == "0": // the server ignores limit then
		limit = 0
		at, told, err = s.moment(ctx, "0", false)
	default:
		exact := o.ResourceVersionMatch == metav1.ResourceVersionMatchExact || o.ResourceVersionMatch == "" && o.Limit > 0 && rv != ""
		at, told, err = s.moment(ctx, rv, exact)
	}
	if err != nil {
		return nil, err
	}
	if err := s.isReadable(at); err != nil {
		if o.Continue != "" && apierrors.IsResourceExpired(err) {
			return nil, expiredToken(after)
		}
		return nil, err
	}
	l := &list{ctx: ctx, of: s, target: to, pages: s.pages(ctx, p, at, after, 0)}
	l.meta.ResourceVersion = told
	if limit > 0 {
		if err := l.limit(p, at, after, int(min(limit, maxLimit))); err != nil {
			return nil, unavailable(err)
		}
	}
	return l, nil
}

// isReadable returns an error if there is no state at a place.
func (s *served) isReadable(at store.Place) error {
	_, err := s.Reader.Keys(store.Query{At: at, Limit: 1})
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// expiredToken is the answer to a list that can only go on with another state.
func expiredToken(after string) error {
	err := apierrors.NewResourceExpired("the state that the continue parameter is of is not known any more; the continue in this answer goes on with the present one, so that the list is not of one moment")
	err.ErrStatus.ListMeta.Continue = continueToken{After: after}.String()
	return err
}

// limit reads a page of the list, which says whether there is more.
func (l *list) limit(p *selection, at store.Place, after string, limit int) error {
	var all []store.Entry
	for entries, err := range l.of.pages(l.ctx, p, at, after, limit+1) {
		if err != nil {
			return err
		}
		all = append(all, entries...)
	}
	if len(all) > limit {
		all = all[:limit]
		token := continueToken{RV: l.meta.ResourceVersion, After: all[limit-1].Key}
		if at.Exact() {
			token.Place = at.String()
		}
		l.meta.Continue = token.String()
	}
	l.pages = func(yield func([]store.Entry, error) bool) { yield(all, nil) }
	return nil
}
