package informer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/internal/guarantees"
	"github.com/informctl/informctl/store/bolt"
)

// TestTransformMisbehaves checks that an object whose transform misbehaves is reported by
// its key, keeps its last good state and freezes the stored resource version. Other
// objects, and the next state of this object, are stored. A transform may clear the UID
// and the resource version; without its name, an object is no longer the same.
func TestTransformMisbehaves(t *testing.T) {
	cases := map[string]struct {
		spoil func(*corev1.ConfigMap) (any, error)
		taken bool
	}{
		"another type": {spoil: func(cm *corev1.ConfigMap) (any, error) {
			return &corev1.Pod{ObjectMeta: cm.ObjectMeta}, nil
		}},
		"metadata only": {spoil: func(cm *corev1.ConfigMap) (any, error) {
			return &metav1.PartialObjectMetadata{ObjectMeta: cm.ObjectMeta}, nil
		}},
		"a string": {spoil: func(*corev1.ConfigMap) (any, error) { return "secret-content", nil }},
		"nil":      {spoil: func(*corev1.ConfigMap) (any, error) { return nil, nil }}, //nolint:nilnil // the wrong input
		"a nil pointer": {spoil: func(*corev1.ConfigMap) (any, error) {
			return (*corev1.ConfigMap)(nil), nil
		}},
		"error": {spoil: func(*corev1.ConfigMap) (any, error) { return nil, errors.New("on purpose") }},
		"panic": {spoil: func(*corev1.ConfigMap) (any, error) { panic("secret-content") }},
		"no name": {spoil: func(cm *corev1.ConfigMap) (any, error) {
			cm.Name, cm.Namespace = "", ""
			return cm, nil
		}},
		"no UID": {taken: true, spoil: func(cm *corev1.ConfigMap) (any, error) {
			cm.UID = ""
			return cm, nil
		}},
		"no resource version": {taken: true, spoil: func(cm *corev1.ConfigMap) (any, error) {
			cm.ResourceVersion = ""
			return cm, nil
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.put("bad", "fine")
				w.put("good", "1")
				l := &log{}
				r := w.run(informer.Options{TransformVersion: "1"}, handle(w, l), func(inf *informer.Informer) {
					if err := inf.SetTransform(func(obj any) (any, error) {
						if cm := obj.(*corev1.ConfigMap); cm.Data["v"] == "secret-content" {
							return c.spoil(cm)
						}
						return obj, nil
					}); err != nil {
						t.Error(err)
					}
				}).sync()
				l.take()
				w.put("bad", "secret-content")
				w.put("good", "2")
				waitFor(5 * time.Minute)
				if rv := r.inf.GetStore().LastStoreSyncResourceVersion(); rv != "5" {
					t.Errorf("LastStoreSyncResourceVersion() = %s, want 5: whoever waits for a write of another object would wait on", rv)
				}
				if c.taken {
					told := l.take()
					if len(told) != 2 || !contains(told, "good@5=2") || !contains(told, "=secret-content") {
						t.Errorf("told %q", told)
					}
				} else {
					w.want(l, "update good@3=1 good@5=2")
					st := r.inf.Status()
					if len(st.Rejected) != 1 || st.Rejected[0] == "default/good" || st.Checkpoint.RV == "5" {
						t.Errorf("rejected %q, checkpoint %+v", st.Rejected, st.Checkpoint)
					}
					if strings.Contains(st.LastError, "secret-content") {
						t.Errorf("an error with an object's content: %s", st.LastError)
					}
				}
				w.put("bad", "fine again")
				waitFor(5 * time.Minute)
				if told := l.take(); len(told) != 1 || !strings.HasSuffix(told[0], "bad@6=fine again") {
					t.Errorf("of its next state told %q", told)
				}
				if rejected := r.inf.Status().Rejected; len(rejected) > 0 {
					t.Errorf("still rejected: %q", rejected)
				}
				r.end()
				if objects, cp := w.stored(w.path); !slices.Equal(objects, []string{"bad@6=fine again", "good@5=2"}) || cp.RV != "6" {
					t.Errorf("stored %q at %+v", objects, cp)
				}
			})
		})
	}
}

// TestClosedBackend checks that an informer whose backend was closed before Run holds its
// objects in memory and reports that.
func TestClosedBackend(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		db := w.open()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		l := &log{}
		r := w.run(informer.Options{Backend: db}, handle(w, l)).sync()
		w.put("a", "2")
		w.want(l, "initial a@2=1", "update a@2=1 a@3=2")
		if memory := r.inf.Status().Memory; !strings.Contains(memory, "closed") {
			t.Errorf("memory: %q", memory)
		}
		r.end()
	})
}

// TestBackendClosedUnderIt checks that an informer whose backend is closed while it runs,
// a mistake of the backend's owner, neither panics nor sends wrong notifications, and
// that its readers get errors.
func TestBackendClosedUnderIt(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		l := &log{}
		r := w.run(informer.Options{}, handle(w, l)).sync()
		if err := r.db.Close(); err != nil {
			t.Error(err)
		}
		w.put("a", "2")
		waitFor(time.Minute)
		if _, _, err := r.inf.GetIndexer().GetByKey("default/a"); err == nil {
			t.Error("a closed backend answered a read")
		}
		r.end()
		w.want(l, "initial a@2=1")
		if objects, cp := w.stored(w.path); !slices.Equal(objects, []string{"a@2=1"}) || cp.RV != "2" {
			t.Errorf("stored %q at %+v", objects, cp)
		}
	})
}

// TestBadHandlers checks that a nil handler is refused with an error that says so.
func TestBadHandlers(t *testing.T) {
	inBubble(t, func(w *world) {
		r := w.run(informer.Options{})
		_, err := r.inf.AddEventHandler(nil)
		if diff := cmp.Diff("informer: event handler is nil", errorText(err)); diff != "" {
			t.Error(diff)
		}
		if err := r.inf.AddIndexers(cache.Indexers{"none": nil}); !strings.Contains(errorText(err), `"none"`) {
			t.Errorf("a nil index function: %v", err)
		}
		r.sync()
		synctest.Wait()
		r.end()
	})
}

// TestNewRefusesUseless checks that New refuses arguments that can never work, and names
// the wrong one.
func TestNewRefusesUseless(t *testing.T) {
	server := fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
	for want, try := range map[string]func() error{
		"ListerWatcher is nil": func() error {
			_, err := informer.New((*cache.ListWatch)(nil), &corev1.ConfigMap{}, informer.Options{})
			return err
		},
		"Backend is a nil pointer": func() error {
			_, err := informer.New(server, &corev1.ConfigMap{}, informer.Options{Backend: (*bolt.DB)(nil)})
			return err
		},
		"backend is nil": func() error {
			_, err := informer.NewFactory((*bolt.DB)(nil), &rest.Config{}, informer.FactoryOptions{})
			return err
		},
		"*v1.Status has no metadata": func() error {
			_, err := informer.New(server, &metav1.Status{}, informer.Options{})
			return err
		},
		"SyncWhen is 77": func() error {
			_, err := informer.New(server, &corev1.ConfigMap{}, informer.Options{SyncWhen: 77})
			return err
		},
		"event handler is nil": func() error {
			inf, err := informer.New(server, &corev1.ConfigMap{}, informer.Options{})
			if err != nil {
				return err
			}
			_, err = inf.AddEventHandler((*log)(nil))
			return err
		},
	} {
		if err := try(); !strings.Contains(errorText(err), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestReplaysOfFrozen checks the start after an object that could not be stored has
// frozen the stored resource version. The server sends changes again that are stored
// already. Handlers do not receive them: objects do not go back in time and forward
// again.
func TestReplaysOfFrozen(t *testing.T) {
	inBubble(t, func(w *world) {
		fail := true
		opts := informer.Options{Indexers: cache.Indexers{"v": byValue(&fail, false)}}
		w.put("a", "1")
		w.put("b", "1")
		told := guarantees.New(nil)
		r := w.run(opts, handle(w, told)).sync()
		w.put("a", "bad")
		w.put("b", "2")
		w.put("b", "3")
		waitFor(5 * time.Second)
		r.end()
		told.Start(told.Held())
		l := &log{}
		r = w.run(opts, handle(w, l), handle(w, told)).sync()
		w.want(l, "initial a@2=1", "initial b@6=3")
		w.put("a", "2")
		synctest.Wait()
		r.atRest(told)
		r.end()
	})
}

// TestReplaysOfRecreated checks an object that was updated, deleted and re-created while
// the stored resource version was frozen. With every policy, handlers receive its changes
// once.
func TestReplaysOfRecreated(t *testing.T) {
	for _, policy := range []informer.SyncPolicy{informer.CaughtUp, informer.Loaded} {
		t.Run(fmt.Sprint(policy), func(t *testing.T) {
			inBubble(t, func(w *world) {
				fail := true
				opts := informer.Options{Indexers: cache.Indexers{"v": byValue(&fail, false)}, SyncWhen: policy}
				w.put("a", "1")
				w.put("b", "1")
				w.put("c", "1")
				r := w.run(opts).sync()
				w.put("b", "bad") // freezes
				w.put("a", "2")
				w.drop("a")
				w.put("a", "new") // 8, under another UID
				w.put("c", "2")   // 9
				w.put("c", "3")   // 10
				waitFor(5 * time.Second)
				r.end()
				told, l := guarantees.New(nil), &log{}
				r = w.run(opts, handle(w, l), handle(w, told)).sync()
				waitFor(10 * time.Second)
				w.want(l, "initial a@8=new", "initial b@3=1", "initial c@10=3")
				w.put("b", "2") // 11
				w.want(l, "update b@3=1 b@11=2")
				r.atRest(told)
				r.end()
			})
		})
	}
}

// TestSinceReplays checks that a client that knows the state at the stored resource
// version receives the changes that were stored after it was frozen, although handlers do
// not.
func TestSinceReplays(t *testing.T) {
	inBubble(t, func(w *world) {
		fail := true
		opts := informer.Options{Indexers: cache.Indexers{"v": byValue(&fail, false)}}
		w.put("a", "1")
		w.put("b", "1") // 3
		r := w.run(opts).sync()
		commit()
		w.put("b", "bad")
		w.put("a", "2")
		w.put("c", "1")
		w.drop("a") // 7
		w.put("a", "new")
		waitFor(5 * time.Second)
		r.end()
		w.put("b", "2")
		var h http.Handler
		r = w.run(opts, func(inf *informer.Informer) { h = handlerOf(inf) })
		client := serveInBubble(t, h)
		r.sync()
		s := client.since("3")
		s.wantNext(t, "since 3", "ADDED c=1", "DELETED a=1", "ADDED a=new", "MODIFIED b=2")
		s.close()
		client.end()
		r.end()
	})
}

// TestRefusedRecreation checks an object that is deleted and re-created in one batch, in
// a state that cannot be stored. The former object is deleted all the same.
func TestRefusedRecreation(t *testing.T) {
	inBubble(t, func(w *world) {
		fail, gate := true, make(chan struct{})
		opts := informer.Options{Indexers: cache.Indexers{"v": func(obj any) ([]string, error) {
			if obj.(*corev1.ConfigMap).Name == "first" {
				<-gate // the others queue behind it
			}
			return byValue(&fail, false)(obj)
		}}}
		w.put("a", "1")
		w.put("b", "1")
		told, l := guarantees.New(nil), &log{}
		r := w.run(opts, handle(w, l), handle(w, told)).sync()
		w.want(l, "initial a@2=1", "initial b@3=1")
		w.put("first", "1")
		synctest.Wait()
		w.put("b", "2")
		w.drop("a")
		w.put("a", "bad")
		w.put("b", "bad") // its previous state in the batch stays
		synctest.Wait()
		close(gate)
		waitFor(5 * time.Second)
		w.want(l, "add first@4=1", "update b@3=1 b@5=2", "delete a@6=1")
		if s := r.inf.Status(); s.RejectedCount != 2 || s.Checkpoint.RV != "4" {
			t.Errorf("%d objects are rejected and %s is stored, want 2 and 4", s.RejectedCount, s.Checkpoint.RV)
		}
		r.end()
		if objects, cp := w.stored(w.path); !slices.Equal(objects, []string{"b@5=2", "first@4=1"}) || cp.RV != "4" {
			t.Errorf("stored are %q at %q, want b@5=2 and first@4=1 at 4", objects, cp.RV)
		}
		w.put("a", "2")
		w.put("b", "3")
		told.Start(told.Held())
		r = w.run(opts, handle(w, told)).sync()
		r.atRest(told)
		r.end()
	})
}

// TestDeletionOfWhatWasNeverHeld checks an object that is re-created, cannot be stored,
// and is deleted. The state that the server sends with the deletion is not that of the
// object that handlers know, so they receive the last known state of theirs.
func TestDeletionOfWhatWasNeverHeld(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		l := &log{}
		refuse := func(inf *informer.Informer) {
			err := inf.SetTransform(func(obj any) (any, error) {
				if obj.(*corev1.ConfigMap).Data["v"] == "bad" {
					return nil, errOnPurpose
				}
				return obj, nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		opts := informer.Options{TransformVersion: "1"}
		w.run(opts, refuse).sync().end()
		r := w.run(opts, refuse, handle(w, l)).sync()
		w.want(l, "initial a@2=1")
		w.server.Down()
		w.drop("a")
		w.put("a", "bad")
		if err := w.server.Compact(w.server.RV()); err != nil {
			t.Fatal(err)
		}
		w.server.Up()
		waitFor(time.Minute) // the list contains it, and it is refused
		w.want(l)
		w.drop("a")
		w.want(l, "delete tombstone a@2=1")
		late := &log{}
		handle(w, late)(r.inf)
		w.want(late, "initial a@2=1", "delete tombstone a@2=1")
		r.end()
	})
}

// TestNamelessEvent checks that an event without a name does not end the process.
func TestNamelessEvent(t *testing.T) {
	for _, content := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(content, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.overWire(content, nil)
				w.put("a", "1")
				r := w.run(informer.Options{}).sync()
				w.server.Send(watch.Event{Type: watch.Added, Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "100"}}})
				waitFor(time.Minute)
				r.end()
			})
		})
	}
}

// TestRejectedThenDeletedInStream checks that an object that a transform refuses does not
// freeze the resource version when it is deleted within the streamed list, as servers
// before Kubernetes 1.31 send it.
func TestRejectedThenDeletedInStream(t *testing.T) {
	inBubble(t, func(w *world) {
		inner := cache.ToListerWatcherWithContext(w.server)
		w.lw = &cache.ListWatch{
			ListWithContextFunc: inner.ListWithContext,
			WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				events, err := inner.WatchWithContext(ctx, opts)
				if err != nil || opts.SendInitialEvents == nil {
					return events, err
				}
				out := make(chan watch.Event)
				proxy := watch.NewProxyWatcher(out)
				go func() {
					defer close(out)
					defer events.Stop()
					send := func(e watch.Event) bool {
						select {
						case out <- e:
							return true
						case <-proxy.StopChan():
							return false
						}
					}
					x := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x", UID: "x", ResourceVersion: "1"}}
					if !send(watch.Event{Type: watch.Added, Object: x}) || !send(watch.Event{Type: watch.Deleted, Object: x.DeepCopy()}) {
						return
					}
					for e := range events.ResultChan() {
						if !send(e) {
							return
						}
					}
				}()
				return proxy, nil
			},
		}
		w.put("a", "1")
		r := w.run(informer.Options{TransformVersion: "1"}, func(inf *informer.Informer) {
			_ = inf.SetTransform(func(obj any) (any, error) {
				if obj.(*corev1.ConfigMap).Name == "x" {
					return nil, errors.New("on purpose")
				}
				return obj, nil
			})
		}).sync()
		last := w.put("a", "2")
		waitFor(time.Hour)
		cp := r.inf.Reader().Checkpoint()
		if cp.RV != last {
			t.Errorf("checkpoint %q (%s), want %s; rejected: %q", cp.RV, cp.Reason, last, r.inf.Status().Rejected)
		}
		r.end()
	})
}
