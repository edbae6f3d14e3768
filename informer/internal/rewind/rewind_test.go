package rewind

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/informctl/informctl/store"
)

// backend has the scopes of one cluster and a ledger.
type backend struct {
	store.Backend
	scopes []store.Info
	ledger map[string][]byte
	err    error // of the next write
	writes int
}

func (b *backend) Scopes() ([]store.Info, error) { return b.scopes, nil }

func (b *backend) Ledger(context.Context, string) (map[string][]byte, error) { return b.ledger, nil }

func (b *backend) SetLedger(_ context.Context, _ string, changes map[string][]byte) error {
	if b.err != nil {
		return b.err
	}
	b.writes++
	for id, value := range changes {
		if b.ledger[id] = value; value == nil {
			delete(b.ledger, id)
		}
	}
	return nil
}

func (b *backend) ReplaceLedger(ctx context.Context, name string, changes map[string][]byte) error {
	return b.SetLedger(ctx, name, changes)
}

func (*backend) LedgerLosses() uint64 { return 0 }

// informer counts how often it was told.
type informer struct{ told int }

func (i *informer) RewoundElsewhere(string) { i.told++ }

// world has the informers of pods and nodes; those of services and of another cluster do
// not run.
type world struct {
	*testing.T
	*backend
	pods, nodes         *informer
	leavePods           func()
	leaveNodes          func()
	idPods, idNodes     string
	idServices, idOther string
}

func scope(cluster, resource string) store.Scope {
	return store.Scope{Cluster: cluster, Resource: resource}
}

func (w *world) of() History { return Of(w.backend, scope("c", "pods")) }

func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, backend: &backend{ledger: map[string][]byte{}}, pods: &informer{}, nodes: &informer{}}
		for id, s := range map[*string]store.Scope{
			&w.idPods: scope("c", "pods"), &w.idNodes: scope("c", "nodes"), &w.idServices: scope("c", "services"), &w.idOther: scope("d", "pods"),
		} {
			*id = s.ID()
			w.scopes = append(w.scopes, store.Info{ID: s.ID(), Scope: s})
		}
		w.scopes = append(w.scopes, store.Info{ID: "events", Scope: scope("c", "events")})
		w.leavePods = w.of().Join(t.Context(), w.pods, w.idPods)
		w.leaveNodes = w.of().Join(t.Context(), w.nodes, w.idNodes)
		f(w)
		w.leavePods()
		w.leaveNodes()
		if w.of().sharing() != nil {
			t.Error("the informers have left, and are remembered")
		}
	})
}

// want checks which ids the ledger has.
func (w *world) want(ids ...string) {
	w.Helper()
	var got []string
	for id := range w.ledger {
		got = append(got, id)
	}
	slices.Sort(got)
	slices.Sort(ids)
	if diff := cmp.Diff(ids, got); diff != "" {
		w.Errorf("the ledger (-want +got):\n%s", diff)
	}
}

// TestFound checks that what others hold is noted before the scope of the finder says
// anything, with the finder's own: a process may die at any moment.
func TestFound(t *testing.T) {
	inWorld(t, func(w *world) {
		w.of().Found(w.Context(), w.pods)
		w.want(w.idPods, w.idNodes, w.idServices)
		w.of().Noted(w.Context(), w.pods)
		w.want(w.idNodes, w.idServices)
		w.of().Noted(w.Context(), w.nodes)
		w.want(w.idServices)
		writes := w.writes
		w.of().Noted(w.Context(), w.nodes) // its list has failed, and begins again
		if w.pods.told != 0 || w.nodes.told != 1 || w.writes != writes {
			w.Errorf("pods were told %d times and nodes %d, %d needless writes", w.pods.told, w.nodes.told, w.writes-writes)
		}
		services := &informer{}
		leave := w.of().Join(w.Context(), services, w.idServices)
		if services.told != 1 {
			w.Errorf("services were told %d times", services.told)
		}
		w.of().Noted(w.Context(), services)
		w.want()
		leave()
	})
}

// TestFoundByTwo checks that nobody lists twice because two informers find one rewind.
func TestFoundByTwo(t *testing.T) {
	inWorld(t, func(w *world) {
		w.of().Found(w.Context(), w.pods)
		w.of().Noted(w.Context(), w.pods)
		w.of().Found(w.Context(), w.nodes)
		w.of().Noted(w.Context(), w.nodes)
		w.want(w.idServices)
		if w.pods.told != 0 || w.nodes.told != 1 {
			w.Errorf("pods were told %d times and nodes %d", w.pods.told, w.nodes.told)
		}
		<-time.After(2 * once) // another rewind
		w.of().Found(w.Context(), w.nodes)
		w.want(w.idPods, w.idNodes, w.idServices)
		if w.pods.told != 1 {
			w.Errorf("pods were told %d times of another rewind", w.pods.told)
		}
	})
}

// TestInMemory checks that an informer without a stored scope takes nothing out of the
// ledger, and is noted by no id: the scope in the file is another matter.
func TestInMemory(t *testing.T) {
	inWorld(t, func(w *world) {
		w.leaveNodes()
		w.leaveNodes = w.of().Join(w.Context(), w.nodes, "") // its key is missing
		w.of().Found(w.Context(), w.nodes)
		w.of().Noted(w.Context(), w.nodes)
		w.want(w.idPods, w.idNodes, w.idServices)
	})
}

// TestLedgerFails checks that what could not be written is known to later informers, and
// written with the next change; and that it is written although the finder is ending.
func TestLedgerFails(t *testing.T) {
	inWorld(t, func(w *world) {
		w.err = errors.New("disk full")
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		w.of().Found(ctx, w.pods)
		w.want()
		services := &informer{}
		leave := w.of().Join(w.Context(), services, w.idServices)
		defer leave()
		if services.told != 1 {
			w.Errorf("services were told %d times", services.told)
		}
		w.err = nil
		w.of().Noted(ctx, w.pods)
		w.want(w.idNodes, w.idServices)
	})
}

// TestUnshared checks that informers without a backend have no history in common.
func TestUnshared(t *testing.T) {
	a, b := &informer{}, &informer{}
	h := Of(nil, scope("c", "pods"))
	for n, i := range []*informer{a, b} {
		defer h.Join(t.Context(), i, strconv.Itoa(n))()
	}
	h.Found(t.Context(), a)
	h.Noted(t.Context(), a)
	if b.told != 0 {
		t.Error("it was told")
	}
}

// TestEvents checks that events of either group have a history of their own.
func TestEvents(t *testing.T) {
	inWorld(t, func(w *world) {
		core, newer := &informer{}, &informer{}
		newerScope := scope("c", "events.events.k8s.io")
		newerScope.Kind.Group = "events.k8s.io"
		of := Of(w.backend, newerScope)
		defer of.Join(w.Context(), newer, newerScope.ID())()
		defer Of(w.backend, scope("c", "events")).Join(w.Context(), core, "events")()
		of.Found(w.Context(), newer)
		w.want("events", newerScope.ID())
		if core.told != 1 || w.pods.told+w.nodes.told != 0 {
			w.Errorf("core events were told %d times, pods %d and nodes %d", core.told, w.pods.told, w.nodes.told)
		}
	})
}

// unhashable is a backend that can be compared by its type only.
type unhashable struct {
	store.Backend
	opts any
}

// TestUnhashable checks that a backend whose value cannot be a key is shared with nobody.
func TestUnhashable(t *testing.T) {
	h := Of(unhashable{opts: []int{1}}, scope("c", "pods"))
	leave := h.Join(t.Context(), &informer{}, "id")
	h.Found(t.Context(), &informer{})
	leave()
}
