package commit_test

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/commit"
	"github.com/informctl/informctl/store/bolt/internal/content"
	"github.com/informctl/informctl/store/bolt/internal/graveyard"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/pack"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// scope is the bucket of a scope, and what it has in memory.
type scope struct {
	*testing.T
	db       *bbolt.DB
	manifest *record.Manifest
	packer   *pack.Packer
	log      changelog.State
}

var scopeName = []byte("scope")

func newScope(t *testing.T) *scope {
	t.Helper()
	s := &scope{T: t, manifest: record.NewManifest(store.Scope{Cluster: "c", Resource: "pods"})}
	s.log.Sum = &changelog.Sum{Max: math.MaxInt64, Exceeded: func() {}}
	var err error
	if s.db, err = bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, &bbolt.Options{NoSync: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.db.Close() })
	if s.packer, err = pack.New(pack.Options{Codec: 1, Spent: func(time.Time) {}, Samples: func() [][]byte { return nil }}); err != nil {
		t.Fatal(err)
	}
	s.update(func(b *bbolt.Bucket) error { return layout.CreateContent(b, s.manifest) })
	s.log.Opened(s.manifest)
	return s
}

func (s *scope) update(fn func(b *bbolt.Bucket) error) {
	s.Helper()
	err := s.db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(scopeName)
		if err == nil {
			err = fn(b)
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
}

// stored returns the manifest in the file.
func (s *scope) stored() (m *record.Manifest) {
	s.Helper()
	s.update(func(b *bbolt.Bucket) error {
		m = s.manifestOf(b)
		return nil
	})
	return m
}

func (s *scope) manifestOf(b *bbolt.Bucket) *record.Manifest {
	s.Helper()
	m, err := layout.ReadManifest(s.manifest.Scope().ID(), b)
	if err != nil {
		s.Fatal(err)
	}
	return m
}

func object(key, content string) *overlay.Entry {
	return &overlay.Entry{Key: key, Name: key, Head: &record.Header{Hash: []byte(content), Size: int64(len(content))}, Payload: record.Packed{Bytes: []byte(content)}}
}

// part captures entries as one batch.
func (s *scope) part(rv string, entries ...*overlay.Entry) *commit.Part {
	s.Helper()
	over, b := overlay.NewView(), store.Batch{RV: rv, Time: time.Unix(1, 0)}
	for _, e := range entries {
		s.log.AppliedEntry(e, b)
		over.Put(e)
	}
	s.log.Applied(b, rv)
	return &commit.Part{Overlay: over, Packer: s.packer, Checkpoint: b.Checkpoint(store.Checkpoint{}), Capture: s.log.Captured()}
}

func (s *scope) options() changelog.Options {
	return changelog.Options{
		Bounds: func(int64) (int64, time.Duration) { return 1 << 20, time.Hour }, Codec: 1, Logger: logr.Discard(),
		Corrupt: func(where string, err error) error { return fmt.Errorf("%s: %w", where, err) },
	}
}

// in runs fn with a Writer and ends that.
func (s *scope) in(fn func(w *content.Writer) error) {
	s.Helper()
	s.update(func(b *bbolt.Bucket) error {
		w, err := content.NewWriter(s.manifest.Scope().ID(), b, content.Options{
			Packer: s.packer, Codec: 1, Logger: logr.Discard(), Corrupt: s.options().Corrupt,
		})
		if err == nil {
			err = fn(w)
		}
		if err == nil {
			err = w.End()
		}
		return err
	})
}

func (s *scope) write(p *commit.Part) {
	s.Helper()
	if err := p.Pack(); err != nil {
		s.Fatal(err)
	}
	s.in(func(w *content.Writer) error { return p.Write(w, s.options()) })
}

// TestWrite writes objects, log and checkpoint of one moment together.
func TestWrite(t *testing.T) {
	s := newScope(t)
	p := s.part("7", object("n/a", "a"), object("n/b", "bb"), &overlay.Entry{Key: "n/gone", Name: "n/gone"})
	p.Told = 3
	if s.write(p); !p.Written || p.Stored != 2 || p.PackedBytes() != 3 || p.Size() != int64(3+len("n/a"+"n/b"+"n/gone")) {
		t.Errorf("the part is %+v, with %d packed bytes of %d", p, p.PackedBytes(), p.Size())
	}
	m := s.stored()
	if m.RV != "7" || !m.Complete || m.Objects.Count != 2 || m.Bytes != p.Bytes || m.Log.Settled != 3 {
		t.Errorf("the manifest is %+v", m)
	}
	if m.Log != p.Log || m.Log.Entries != 3 {
		t.Errorf("the log is %+v, want an entry for each change", m.Log)
	}
	p = s.part("8", &overlay.Entry{Key: "n/a", Name: "n/a"})
	p.Loading = true
	if s.write(p); p.Stored != 1 || s.stored().Complete {
		t.Errorf("%d objects are stored and complete is %v, want 1 and false", p.Stored, s.stored().Complete)
	}
}

// TestDropFormer logs what is gone before it drops the former content.
func TestDropFormer(t *testing.T) {
	for _, tc := range []struct {
		name    string
		content string // of the part
		drops   bool
	}{
		{"there is room for the part then", "short", true},
		{"the part is larger than the former content", fmt.Sprintf("%01000d", 1), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScope(t)
			s.write(s.part("7", object("n/gone", fmt.Sprintf("%0500d", 1)), object("n/stays", "stays")))
			s.update(func(b *bbolt.Bucket) error {
				was, m := s.manifestOf(b), record.NewManifest(s.manifest.Scope())
				if err := graveyard.BeginAgain(b, was, m, true); err != nil {
					return err
				}
				return layout.CreateContent(b, m)
			})
			gone := &overlay.Entry{Key: "n/gone", Name: "n/gone", Departs: 1, Since: time.Unix(1, 0), Before: object("n/gone", "before")}
			p := s.part("9", object("n/stays", tc.content))
			p.Gone = []*overlay.Entry{gone}
			if err := p.Pack(); err != nil {
				t.Fatal(err)
			}
			var attempt *changelog.Attempt
			s.in(func(w *content.Writer) (err error) {
				attempt, err = p.DropFormer(w, s.options())
				return err
			})
			var kept bool
			s.update(func(b *bbolt.Bucket) error {
				kept = b.Bucket(layout.Former) != nil
				return nil
			})
			if dropped := attempt != nil; dropped != tc.drops || kept == tc.drops {
				t.Fatalf("dropped: %v, and the former content is there: %v", dropped, kept)
			}
			if !tc.drops {
				return
			}
			if s.stored().Log.Departed != 1 {
				t.Errorf("the log is %+v, want the departed object", s.stored().Log)
			}
			if s.stored().Log.Mark.IsReadable() {
				t.Errorf("the mark is %+v, that of a state, before the rest of the commit is there", s.stored().Log.Mark)
			}
			if s.write(p); !s.stored().Log.Mark.IsReadable() {
				t.Errorf("the mark is %+v after the commit, want that of a state", s.stored().Log.Mark)
			}
		})
	}
}
