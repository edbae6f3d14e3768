package informer_test

import (
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store/bolt"
)

// TestDeletedBeforeDrop checks that objects that were deleted while the process was down
// reach handlers even if the start cannot use what is stored and lists everything.
func TestDeletedBeforeDrop(t *testing.T) {
	unversioned := func(inf *informer.Informer) {
		_ = inf.SetTransform(func(obj any) (any, error) { return obj, nil })
	}
	for name, c := range map[string]struct {
		db      bolt.Options
		opts    informer.Options
		prepare []func(*informer.Informer)
		down    time.Duration
	}{
		"another transform":              {opts: informer.Options{TransformVersion: "2"}},
		"a transform without a version":  {prepare: []func(*informer.Informer){unversioned}},
		"older than the maximum age":     {db: bolt.Options{MaxAge: time.Hour}, down: 2 * time.Hour},
		"with an index that is new, too": {opts: informer.Options{TransformVersion: "2", Indexers: cache.Indexers{"v": byValue(new(bool), false)}}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.put("a", "1")
				w.put("b", "1")
				w.put("c", "1")
				w.put("d", "1")
				w.run(informer.Options{}).sync().end()
				w.drop("a")
				w.put("b", "2")
				w.drop("c")
				w.put("c", "again") // re-created under a new UID
				waitFor(c.down)

				open := func(handlers ...func(*informer.Informer)) *run {
					t.Helper()
					db, err := bolt.Open(w.path, c.db)
					if err != nil {
						t.Fatal(err)
					}
					opts := c.opts
					opts.Backend = db
					r := w.run(opts, append(handlers, c.prepare...)...)
					r.db = db
					return r.sync()
				}
				first, late := &log{}, &log{}
				before := len(w.server.Requests())
				r := open(handle(w, first))
				if len(w.lists(before)) == 0 {
					t.Fatal("nothing was listed: this tests nothing")
				}
				want := []string{
					"initial a@2=1", "delete tombstone a@2=1", "initial c@4=1", "delete tombstone c@4=1",
					"initial b@7=2", "initial c@9=again", "initial d@5=1",
				}
				w.want(first, want...)
				w.drop("d")
				w.want(first, "delete d@10=1")
				waitFor(3 * time.Minute)
				handle(w, late)(r.inf)
				w.want(late, want[:6]...) // d was listed by this process
				r.end()

				next := &log{}
				r = open(handle(w, next))
				w.want(next, "initial b@7=2", "initial c@9=again")
				r.end()
			})
		})
	}
}

// TestDeletedBeforeDropTwice checks that such deletions are not lost by a process that
// ends before its list is whole, nor by one that has told no handler.
func TestDeletedBeforeDropTwice(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		w.put("b", "1")
		w.put("c", "1")
		w.run(informer.Options{TransformVersion: "1"}).sync().end()
		w.drop("a") // 5
		w.server.Down()
		r := w.run(informer.Options{TransformVersion: "2"})
		waitFor(time.Minute)
		if r.inf.HasSynced() || len(r.inf.GetStore().List()) > 0 {
			t.Error("what another transform has made is served")
		}
		r.end()
		w.server.Up()

		w.run(informer.Options{TransformVersion: "3"}).sync().end() // tells nobody
		w.drop("b")                                                 // 6
		l := &log{}
		r = w.run(informer.Options{TransformVersion: "4"}, handle(w, l)).sync()
		w.want(l, "initial a@2=1", "delete tombstone a@2=1", "initial b@3=1", "delete tombstone b@3=1", "initial c@4=1")
		r.end()
		r = w.run(informer.Options{TransformVersion: "1"}, handle(w, l)).sync()
		w.want(l, "initial c@4=1")
		r.end()
	})
}
