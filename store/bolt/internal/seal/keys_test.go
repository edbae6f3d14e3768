package seal_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

type provider struct {
	keys []codec.Key
	err  error
}

func (p provider) Keys(context.Context) ([]codec.Key, error) { return p.keys, p.err }

// persisted writes a keyring to a file and returns what the file has of it.
func persisted(t *testing.T, ring *seal.Keyring) (stored *seal.Stored) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	err = db.Update(func(tx *bbolt.Tx) (err error) {
		if _, err = tx.CreateBucket([]byte("meta")); err == nil {
			err = ring.Persist(tx)
		}
		if err == nil {
			stored, err = seal.Read(tx)
		}
		return err
	})
	if err != nil || stored == nil {
		t.Fatalf("stored %v: %v", stored, err)
	}
	return stored
}

// TestKeys checks what Load returns for each state of the provider and of the file, and
// that a keyring that an earlier key has opened is to be written once.
func TestKeys(t *testing.T) {
	one, two := codec.Key{1}, codec.Key{2}
	none := func() (*seal.Stored, error) { return nil, nil }
	for name, p := range map[string]codec.KeyProvider{
		"none": nil, "failing": provider{err: errors.New("away")}, "empty": provider{},
	} {
		k := seal.Keys{Provider: p}
		if _, err := k.Load(none, true); !errors.Is(err, store.ErrNoKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	k := seal.Keys{Provider: provider{keys: []codec.Key{one}}}
	if _, err := k.Load(none, false); !errors.Is(err, seal.ErrMissing) {
		t.Errorf("without stored keys: %v", err)
	}
	ring, err := k.Load(none, true)
	if err != nil || k.Loaded() != ring || k.Dirty() != nil {
		t.Fatalf("a new keyring: %v", err)
	}
	stored := persisted(t, ring)
	for name, test := range map[string]struct {
		keys  []codec.Key
		want  error
		dirty bool
	}{
		"the same":          {[]codec.Key{one}, nil, false},
		"another":           {[]codec.Key{two}, seal.ErrOtherKey, false},
		"another in front":  {[]codec.Key{two, one}, nil, true},
		"the same in front": {[]codec.Key{one, two}, nil, false},
	} {
		wrapped := 0
		k := seal.Keys{Provider: provider{keys: test.keys}, Wrapped: func() { wrapped++ }}
		_, err := k.Load(func() (*seal.Stored, error) { return stored, nil }, false)
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
		if isDirty := k.Dirty() != nil; isDirty != test.dirty || (wrapped == 1) != test.dirty || k.Dirty() != nil {
			t.Errorf("%s: dirty %t, told %d times", name, isDirty, wrapped)
		}
	}
}

// TestForget checks that a reader which began before Forget can still decrypt, and that
// the file does not get the forgotten keys.
func TestForget(t *testing.T) {
	user := codec.Key{1}
	ring := seal.New(user, seal.DefaultBudget)
	s, err := seal.For(ring, "scope")
	if err != nil {
		t.Fatal(err)
	}
	sealed := func(payload string) record.Record {
		return s.Begin(1).Record(seal.InScope, "a/b", record.Record{Payload: []byte(payload)})
	}
	before := sealed("before")
	ring.Forget()
	after := sealed("after")
	if before.DataKey != after.DataKey {
		t.Fatalf("data keys %d and %d: this tests nothing", before.DataKey, after.DataKey)
	}
	for want, r := range map[string]record.Record{"before": before, "after": after} {
		if got, err := s.AppendPayload([]byte("+"), seal.InScope, "a/b", r); err != nil || string(got) != "+"+want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	if s, err = seal.For(seal.Open(persisted(t, ring), []codec.Key{user}, seal.DefaultBudget), "scope"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.AppendPayload(nil, seal.InScope, "a/b", before); err == nil {
		t.Error("the file has a key that was forgotten")
	}
}
