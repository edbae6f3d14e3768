package pack_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/pack"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// sharing returns entries whose payloads share a text that is made from a seed.
func sharing(n int, seed uint64) []*overlay.Entry {
	rng := rand.New(rand.NewPCG(seed, 0))
	common := make([]byte, 600)
	for i := range common {
		common[i] = byte('a' + rng.IntN(26))
	}
	entries := make([]*overlay.Entry, n)
	for i := range entries {
		entries[i] = &overlay.Entry{
			Key: fmt.Sprint(i), Head: &record.Header{},
			Payload: record.Packed{Bytes: fmt.Appendf(nil, "%s %d %x", common, i, rng.Uint64())},
		}
	}
	return entries
}

func open(t *testing.T, o pack.Options) *pack.Packer {
	t.Helper()
	o.Spent = func(time.Time) {}
	if o.Samples == nil {
		o.Samples = func() [][]byte { return nil }
	}
	p, err := pack.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func packed(t *testing.T, p *pack.Packer, entries []*overlay.Entry) []record.Packed {
	t.Helper()
	out, err := p.Pack(seal.InScope, entries)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range entries {
		if payload, err := p.Decompress(out[i].Dictionary, out[i].Bytes, nil); err != nil || !bytes.Equal(payload, e.Payload.Bytes) {
			t.Fatalf("%s is not the same: %v", e.Key, err)
		}
	}
	return out
}

// TestRenew checks that what was learned from lost content is not used for other content,
// and can still be read, also if it is learned by a commit in flight.
func TestRenew(t *testing.T) {
	for name, learn := range map[string]func(p *pack.Packer){
		"before":    func(p *pack.Packer) { packed(t, p, sharing(2*codec.MinSamples, 1)) },
		"in flight": func(*pack.Packer) {},
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t, pack.Options{Trains: true})
			learn(p)
			before := packed(t, p, sharing(2, 1))
			next := p.Renew()
			packed(t, p, sharing(2*codec.MinSamples, 1))
			if _, there := p.Current(); !there {
				t.Fatal("no dictionary: this tests nothing")
			}
			if _, there := next.Current(); there || !next.CanTrain() {
				t.Error("the dictionary of lost content is used")
			}
			for i, e := range sharing(2, 1) {
				if payload, err := next.Decompress(before[i].Dictionary, before[i].Bytes, nil); err != nil || !bytes.Equal(payload, e.Payload.Bytes) {
					t.Errorf("cannot be read any more: %v", err)
				}
			}
			packed(t, next, sharing(2*codec.MinSamples, 2))
			if d, there := next.Current(); !there || bytes.Contains(d, sharing(1, 1)[0].Payload.Bytes[:100]) {
				t.Error("no dictionary, or one of lost content")
			}
		})
	}
}

// TestTrains checks when a dictionary is trained.
func TestTrains(t *testing.T) {
	few, many := sharing(10, 1), sharing(2*codec.MinSamples, 1)
	asked := 0
	grown := func() (samples [][]byte) {
		asked++
		for _, e := range many {
			samples = append(samples, e.Payload.Bytes)
		}
		return samples
	}
	for name, test := range map[string]struct {
		o       pack.Options
		entries []*overlay.Entry
		want    bool
	}{
		"many":         {pack.Options{Trains: true}, many, true},
		"few":          {pack.Options{Trains: true}, few, false},
		"grown":        {pack.Options{Trains: true, Samples: grown}, few, true},
		"not to train": {pack.Options{}, many, false},
	} {
		p := open(t, test.o)
		packed(t, p, test.entries)
		if _, got := p.Current(); got != test.want {
			t.Errorf("%s: trained %t", name, got)
		}
		packed(t, p, test.entries)
	}
	if asked != 1 {
		t.Errorf("samples were asked for %d times", asked)
	}
	varied := sharing(2*codec.MinSamples, 1)
	rng := rand.New(rand.NewPCG(1, 1))
	for _, e := range varied {
		e.Payload.Bytes = nil
		for range 60 {
			e.Payload.Bytes = fmt.Appendf(e.Payload.Bytes, "%x", rng.Uint64())
		}
	}
	for name, test := range map[string]struct {
		entries []*overlay.Entry
		isSmall bool
		left    bool // to be trained
	}{
		"a small list":              {many, true, false},
		"a small list for zstd":     {varied, true, true},
		"a part of a list for zstd": {varied, false, false},
	} {
		p := open(t, pack.Options{Trains: true})
		if _, err := p.PackList(test.entries, test.isSmall); err != nil || p.CanTrain() != test.left {
			t.Errorf("%s: a dictionary is left to be trained: %t, %v", name, p.CanTrain(), err)
		}
	}
}

// TestStored checks that dictionaries are written once, are read again, and are dropped
// when nothing uses them.
func TestStored(t *testing.T) {
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	p := open(t, pack.Options{Trains: true})
	first := packed(t, p, sharing(2*codec.MinSamples, 1))[0]
	renewed := p.Renew()
	second := packed(t, renewed, sharing(2*codec.MinSamples, 2))[0]
	m := record.NewManifest(store.Scope{Cluster: "c", Resource: "pods"})
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte("scope"))
		if err != nil {
			return err
		}
		for _, step := range []struct {
			packer *pack.Packer
			id     uint64
			want   bool
		}{{p, first.Dictionary, true}, {p, first.Dictionary, false}, {renewed, second.Dictionary, true}, {p, 0, false}, {p, 1, false}} {
			if written, err := step.packer.Persist(b, m, step.id); err != nil || written != step.want {
				t.Errorf("dictionary %d: written %t, %v", step.id, written, err)
			}
		}
		m.Uses[second.Dictionary] = 1
		if err := pack.DropUnused(b, m); err != nil {
			return err
		}
		ids, err := pack.Verify(m, b)
		if err != nil {
			return err
		}
		if ids[first.Dictionary] || !ids[second.Dictionary] {
			t.Errorf("%v are left, want %d", ids, second.Dictionary)
		}
		again := open(t, pack.Options{Trains: true})
		if err := again.Load(b); err != nil {
			return err
		}
		if payload, err := again.Decompress(second.Dictionary, second.Bytes, nil); err != nil || !bytes.Equal(payload, sharing(1, 2)[0].Payload.Bytes) {
			t.Errorf("read again: %v", err)
		}
		if written, err := again.Persist(b, m, 77); err == nil {
			t.Errorf("a dictionary that is not known: written %t", written)
		}
		m.Dictionaries.Count++
		if _, err := pack.Verify(m, b); err == nil {
			t.Error("a dictionary that is missing is not noticed")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
