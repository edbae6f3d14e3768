package cluster

import (
	"context"
	"errors"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/internal/endable"
	"github.com/informctl/informctl/store"
)

// The reasons of lists, and of checkpoints without a resource version.
const (
	// Foreign is the reason while the server is another cluster.
	Foreign = "the server is another cluster than the one whose objects are stored"
	// Unknown is the reason while a server that answers has never identified itself.
	Unknown = "the server does not say which cluster it is"
	// HomeAgain is the reason of the list of the right cluster after one of these.
	HomeAgain = "the server is the cluster whose objects are stored, again"
	// Followed is the reason of the list of another cluster that an informer in memory
	// takes for its own.
	Followed = "the server is another cluster than before"
)

// Verifier asks the server whether it is the cluster of a scope. Only the reflector's
// goroutine uses it.
type Verifier struct {
	ask  func(context.Context) (cluster string, err error)
	lw   cache.ListerWatcher
	want string // the cluster of the scope

	named      string // the cluster that the server has named last; "" before it has
	unanswered int    // answers in a row that did not name the cluster
	failed     bool   // the last answer did not, or there was none
}

// NewVerifier returns a Verifier of the cluster of a scope, which asks through a client.
func NewVerifier(client *Client, lw cache.ListerWatcher, want string) *Verifier {
	ask := func(ctx context.Context) (string, error) { return client.askIdentity(ctx, lw) }
	return &Verifier{ask: ask, lw: lw, want: want}
}

// NewVerifierOf returns a Verifier that asks through a function of the program.
func NewVerifierOf(ask func(context.Context) (string, error), lw cache.ListerWatcher, want string) *Verifier {
	bounded := func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, askPatience)
		defer cancel()
		return endable.Call(ctx, func() (string, error) { return ask(ctx) }, nil)
	}
	return &Verifier{ask: bounded, lw: lw, want: want}
}

// Answer is what Ask has received.
type Answer struct {
	cluster string
	err     error
	down    bool // the server answers nothing
}

// Ask asks the server once.
func (v *Verifier) Ask(ctx context.Context) Answer {
	cluster, err := v.ask(ctx)
	down := err != nil && !errors.Is(err, errRefused) && !isServed(err) && !answers(ctx, v.lw)
	return Answer{cluster: cluster, err: err, down: down}
}

// Judge returns what the server is: Foreign, Unknown, or "" for the right cluster. If
// judged is false, it is what it was, and an error says that it must be asked again.
func (v *Verifier) Judge(ctx context.Context, a Answer) (is string, judged bool, err error) {
	err = a.err
	if err == nil && areOfTwoWays(a.cluster, v.want) {
		err = errRefused
	}
	v.failed = err != nil
	switch {
	case err == nil:
		v.named, v.unanswered = a.cluster, 0
		if a.cluster != v.want {
			is = Foreign
		}
	case ctx.Err() != nil:
		return "", false, err
	case a.down:
		v.unanswered = 0
		return "", false, err
	default:
		// From then on, the informer continues at once until the server identifies
		// itself.
		if v.unanswered++; v.unanswered < identityTries {
			return "", false, err
		}
		if v.named != "" {
			klog.FromContext(ctx).Error(err, "The server does not say which cluster it is, going on as with the one that it named last", "cluster", v.named)
			return "", false, nil
		}
		klog.FromContext(ctx).Error(err, "Going on without knowing which cluster the server is")
		is = Unknown
	}
	return is, true, nil
}

// Adopt makes the cluster that the server has named last the one that is asked for, and
// returns it.
func (v *Verifier) Adopt() string {
	v.want = v.named
	return v.want
}

// Failed reports whether the server did not identify itself when it was asked last. It is
// false for a nil Verifier, which asks nobody.
func (v *Verifier) Failed() bool { return v != nil && v.failed }

// DropForeign deletes what an earlier process has listed of another cluster. The log has
// these objects, so it needs their deletions, too.
func DropForeign(s store.Store) error {
	if s.Checkpoint().Reason != store.ForeignContent || s.Len() == 0 {
		return nil
	}
	nothing, err := s.Relist()
	if err != nil {
		return err
	}
	defer func() { _ = nothing.Close() }()
	for b, err := range nothing.Parts("") {
		if err != nil {
			return err
		}
		if err := s.Apply(b); err != nil {
			return err
		}
	}
	return nil
}
