package informer_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/internal/guarantees"
)

// subject is one informer, in a bubble, on which a script is played.
type subject struct {
	*testing.T
	server    *fakeapi.Server
	construct func() (closeBackend func()) // sets inf
	inf       cache.SharedIndexInformer
	ctx       context.Context
	stop      context.CancelFunc
	done      chan struct{} // closed when Run has returned
	started   bool          // Run was called
	held      bool          // the server does not answer lists
	persisted bool          // by an informer that had synced before it was stopped
	broken    bool          // something has failed: resyncs come at other times
	transform string
	check     time.Duration // the informer's resync period, as client-go computes it
	calls     atomic.Int32  // calls of the transform
	failures  atomic.Int32  // calls of the watch error handler
	gate      atomic.Pointer[chan struct{}]
	listeners map[string]*listener
	present   collection
	marked    collection
	history   []string // changes at the server in this step
	refusals  []string // calls that returned an error in this step
	faults    []string // guarantees that were broken in this step
}

func (s *subject) fault(format string, args ...any) {
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// try records a call that returns an error.
func (s *subject) try(call string, err error) {
	if err != nil {
		s.refusals = append(s.refusals, call)
	}
}

// period returns the resync period of a handler; 0 means never.
func (s *subject) period(l *listener) time.Duration {
	if s.check <= 0 || l.wanted <= 0 {
		return 0
	}
	return (max(l.wanted, s.check) + s.check - 1) / s.check * s.check
}

// listener is a handler of a script. It may be registered, removed and registered again.
type listener struct {
	log
	handle   cache.ResourceEventHandlerRegistration // of the last registration
	there    bool
	times    int  // number of registrations
	late     bool // added to a running informer
	wanted   time.Duration
	open     chan struct{} // if nil, calls return at once
	recorder *guarantees.Recorder
	owed     map[string]guarantees.State // to its next start
	earlier  []string                    // those of its earlier registration in this step
}

func (s *subject) listener(name string) *listener {
	if s.listeners[name] == nil {
		l := &listener{recorder: guarantees.New(nil)}
		_, ours := s.inf.(*informer.Informer)
		l.recorder.Repeats = !ours
		s.listeners[name] = l
	}
	return s.listeners[name]
}

func (l *listener) block() {
	if l.open != nil {
		return
	}
	open := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open, l.hook = open, func(string) { <-open }
}

func (l *listener) unblock() {
	if l.open == nil {
		return
	}
	close(l.open)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open, l.hook = nil, nil
}

func (l *listener) OnAdd(obj any, initial bool) {
	kind := "add "
	if initial {
		kind = "initial "
	}
	l.write(kind + show(obj))
	l.recorder.OnAdd(obj, initial)
}

func (l *listener) OnUpdate(old, obj any) {
	if old == obj { // the same pointer
		l.write("resync " + show(obj))
	} else {
		l.write("update " + show(old) + " " + show(obj))
	}
	l.recorder.OnUpdate(old, obj)
}

func (l *listener) OnDelete(obj any) {
	l.write("delete " + show(obj))
	l.recorder.OnDelete(obj)
}

// show is describe with namespaces, transforms and tombstones.
func show(obj any) string {
	if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		text := "tombstone " + show(t.Obj)
		if cm, ok := t.Obj.(*corev1.ConfigMap); !ok || t.Key != cache.MetaObjectToName(cm).String() {
			text += "[key:" + t.Key + "]"
		}
		return text
	}
	text := describe(obj)
	cm, ok := obj.(*corev1.ConfigMap)
	switch {
	case !ok:
		return text
	case cm.Namespace != "default":
		text = cm.Namespace + "/" + text
	}
	if cm.Labels["seen"] != "" {
		text += "[labelled]"
	}
	if len(cm.ManagedFields) > 0 {
		text += "[managed]"
	}
	return text
}

var toldLine = regexp.MustCompile(`^(add|initial|update|resync|delete tombstone|delete) (\S+)(?: (\S+))?$`)

func keyOf(shown string) string {
	key, _, _ := strings.Cut(shown, "@")
	return key
}

// indexFunc returns an index function that returns no value, one value or several.
func (s *subject) indexFunc(kind string) cache.IndexFunc {
	return func(obj any) ([]string, error) {
		if open := s.gate.Load(); open != nil {
			<-*open
		}
		cm := obj.(*corev1.ConfigMap)
		v := cm.Data["v"]
		switch kind {
		case "value":
			return []string{v}, nil
		case "both":
			return []string{v, cm.Name}, nil
		case "twice":
			return []string{v, v}, nil
		case "odd":
			if n, err := strconv.Atoi(v); err == nil && n%2 == 1 {
				return []string{v}, nil
			}
		case "empty":
			return []string{""}, nil
		case "strange":
			return []string{v + "\x00/" + cm.Name, "\xff"}, nil
		}
		return nil, nil
	}
}

// transforms are those that client-go supports: each may be applied twice.
var transforms = map[string]cache.TransformFunc{
	"strip": func(obj any) (any, error) {
		obj.(*corev1.ConfigMap).ManagedFields = nil
		return obj, nil
	},
	"label": func(obj any) (any, error) {
		obj.(*corev1.ConfigMap).Labels = map[string]string{"seen": "yes"}
		return obj, nil
	},
	"rename": func(obj any) (any, error) {
		cm := obj.(*corev1.ConfigMap)
		cm.Name = "x-" + strings.TrimPrefix(cm.Name, "x-")
		return cm, nil
	},
	"fail": func(obj any) (any, error) {
		if obj.(*corev1.ConfigMap).Data["v"] == "bad" {
			return nil, errOnPurpose
		}
		return obj, nil
	},
}
