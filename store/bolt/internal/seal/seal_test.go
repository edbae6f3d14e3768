package seal_test

import (
	"testing"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// BenchmarkSeal measures sealing and opening an object of 3,500 compressed bytes with its
// header and two index values.
func BenchmarkSeal(b *testing.B) {
	s, err := seal.For(seal.New(codec.Key{1}, seal.DefaultBudget), "scope")
	if err != nil {
		b.Fatal(err)
	}
	const key = "default/an-object-of-some-name"
	plain := &record.Header{
		UID: "4b1c2f7e-6f0a-4a57-9f0e-6d1b8f3f7a10", RV: "123456789", Size: 10000, Hash: make([]byte, 16),
		Labels: map[string]string{"app": "web", "pod-template-hash": "6d4cf56db6"},
		Index:  map[string][]string{"namespace": {"default"}, "label:app": {"web"}},
	}
	payload := make([]byte, 3500)
	lock := func() (record.Record, *record.Header) {
		sealer := s.Begin(2)
		h, err := sealer.Header(seal.InScope, key, plain)
		if err != nil {
			b.Fatal(err)
		}
		return sealer.Record(seal.InScope, key, record.Record{Codec: 1, Dictionary: 1, Payload: payload}), h
	}
	b.Run("lock", func(b *testing.B) {
		for b.Loop() {
			lock()
		}
	})
	r, h := lock()
	head := h.Encode(key)
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.AppendPayload(nil, seal.InScope, key, r); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("openHeader", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Header(seal.InScope, key, head); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("hash", func(b *testing.B) {
		large := make([]byte, 10000)
		for b.Loop() {
			s.PayloadHash(key, large)
		}
	})
	b.Run("hashPlain", func(b *testing.B) {
		large := make([]byte, 10000)
		for b.Loop() {
			record.PayloadHash(large)
		}
	})
}
