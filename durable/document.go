package durable

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"github.com/klauspost/compress/zstd"
	"k8s.io/utils/ptr"
)

const (
	// maxShared bounds a document, in compressed bytes. A ConfigMap has a megabyte.
	maxShared = 512 << 10
	// maxWindow bounds how far back the encoder looks, and what it allocates for that.
	maxWindow = 8 << 20
	// smallDocument is up to how many bytes before compression an encoder with megabytes
	// of tables saves too little.
	smallDocument = 64 << 10
	// maxDecompressed bounds what a damaged document can claim, and maxJSON what is
	// written: the next term, which has more digits, is to fit, too.
	maxDecompressed = 64 << 20
	maxJSON         = maxDecompressed - 1<<10
	// sizeOfState is about what a key takes beside its name.
	sizeOfState = 12
)

// document is what Shared holds.
type document struct {
	Term term `json:"term"`
	// Content is the term of the process that has written the rest. A process that dies
	// after it has taken over leaves that of the one before.
	Content  term   `json:"content"`
	Version  string `json:"version"`            // of the logic
	Revision string `json:"revision,omitempty"` // that the program was built from
	// Scopes are the places by the ID of the scope, which have no lineage: another file
	// has another one. Without them a successor receives everything.
	Scopes map[string]place `json:"scopes,omitempty"`
	Keys   sharedKeys       `json:"keys,omitempty"`
}

// sharedKey is a key that is left to do.
type sharedKey struct {
	Key string `json:"key"` // by quote
	keyState
	round uint64
}

// quote makes a key readable where it is text, and safe for JSON where it is not.
func quote(key string) string {
	q := strconv.QuoteToASCII(key)
	return q[1 : len(q)-1]
}

func unquote(q string) (string, error) { return strconv.Unquote(`"` + q + `"`) }

// sharedKeys are keys, which JSON has in columns: what is alike stands together, which
// takes a tenth of the bytes when it is compressed.
type sharedKeys []sharedKey

// columns is the JSON of sharedKeys. Names, Due and Kinds have an element for each key.
type columns struct {
	Names []string `json:"names"`
	// Due is 0 for a key that is not delayed, and else 1 more than the seconds after
	// First, rounded up.
	Due   []int64 `json:"due"`
	First int64   `json:"first"` // seconds since 1970
	// Kinds are indices of States: all else of a key, which many have in common.
	Kinds  []int      `json:"kinds"`
	States []keyState `json:"states"`
}

// MarshalJSON implements json.Marshaler.
func (keys sharedKeys) MarshalJSON() ([]byte, error) {
	c := columns{First: math.MaxInt64}
	for _, k := range keys {
		if !k.Due.IsZero() {
			c.First = min(c.First, k.Due.Unix())
		}
	}
	kinds := map[kind]int{}
	for _, k := range keys {
		due, state := int64(0), k.keyState
		if !k.Due.IsZero() {
			due = k.Due.Add(time.Second-1).Unix() - c.First + 1
		}
		state.Due, state.Delay = time.Time{}, coarse(k.Delay)
		alike := kind{state, ptr.Deref(k.Priority, math.MinInt)}
		alike.Priority = nil
		i, ok := kinds[alike]
		if !ok {
			i = len(c.States)
			kinds[alike], c.States = i, append(c.States, state)
		}
		c.Names, c.Due, c.Kinds = append(c.Names, k.Key), append(c.Due, due), append(c.Kinds, i)
	}
	return json.Marshal(c)
}

// kind is what makes two keys alike.
type kind struct {
	keyState     // without Due and Priority
	priority int // math.MinInt for none
}

// coarse rounds a delay up to seconds of four binary digits, so that few are different.
// What it says is only how long a key waits at most if the clock is wrong.
func coarse(delay time.Duration) time.Duration {
	s := uint64(max(delay, 0) / time.Second)
	if delay%time.Second > 0 {
		s++
	}
	shift := max(bits.Len64(s)-4, 0)
	s = (s + 1<<shift - 1) >> shift << shift
	s = min(s, uint64(math.MaxInt64/time.Second))
	return time.Duration(s) * time.Second //nolint:gosec // it is not more than a Duration has
}

// UnmarshalJSON implements json.Unmarshaler.
func (keys *sharedKeys) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(b, []byte("[")) { // as it was before there were columns
		return json.Unmarshal(b, (*[]sharedKey)(keys))
	}
	var c columns
	if err := json.Unmarshal(b, &c); err != nil {
		return err
	}
	if len(c.Due) != len(c.Names) || len(c.Kinds) != len(c.Names) {
		return fmt.Errorf("%d names have %d times and %d kinds", len(c.Names), len(c.Due), len(c.Kinds))
	}
	*keys = make(sharedKeys, len(c.Names))
	for i, name := range c.Names {
		if c.Kinds[i] < 0 || c.Kinds[i] >= len(c.States) {
			return fmt.Errorf("%q has the kind %d of %d", name, c.Kinds[i], len(c.States))
		}
		k := sharedKey{Key: name, keyState: c.States[c.Kinds[i]]}
		if c.Due[i] > 0 {
			k.Due = time.Unix(c.First+c.Due[i]-1, 0)
		}
		(*keys)[i] = k
	}
	return nil
}

// compress returns a document as Shared has it, and its size before it is compressed. The
// encoder, which would hold megabytes between two writes, is made anew, as large as the
// document needs it.
func (d *document) compress() (b []byte, size int, err error) {
	if b, err = json.Marshal(d); err != nil {
		return nil, 0, err
	}
	level := zstd.SpeedBetterCompression
	if len(b) <= smallDocument {
		level = zstd.SpeedFastest
	}
	window := min(max(1<<bits.Len(uint(len(b))), zstd.MinWindowSize), maxWindow)
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window))
	if err != nil {
		return nil, 0, err
	}
	return enc.EncodeAll(b, nil), len(b), nil
}

// decode reads what compress has returned, or JSON as it was before it was compressed.
func (d *document) decode(b []byte) error {
	if !bytes.HasPrefix(b, []byte("{")) {
		dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxDecompressed))
		if err != nil {
			return err
		}
		defer dec.Close()
		if b, err = dec.DecodeAll(b, nil); err != nil {
			return err
		}
	}
	return json.Unmarshal(b, d)
}

// encode compresses a document, and leaves out what exceeds maxShared or, before it is
// compressed, maxJSON.
func (d *document) encode(rounds []round) ([]byte, error) {
	slices.SortFunc(d.Keys, func(a, b sharedKey) int { return cmp.Compare(a.Key, b.Key) })
	b, size, err := d.compress()
	for room := sizeOf(d.Keys); err == nil && (len(b) > maxShared || size > maxJSON) && room > 0; {
		fits := min(maxShared/float64(len(b)), maxJSON/float64(size))
		room = min(room-room/8-1, int(float64(room)*fits))
		b, size, err = d.leaveOut(rounds, room).compress()
	}
	return b, err
}

// leaveOut returns a document without the keys that exceed a size, whose places are those
// of a round from where what has led to them comes again. Those that only wait go first.
// If others go, too, a successor receives everything, and deletions from the place.
func (d *document) leaveOut(rounds []round, room int) *document {
	oldest := uint64(math.MaxUint64) // round of what is left out
	var kept sharedKeys
	for _, k := range d.Keys {
		if k.round > 0 && k.weight() == waits {
			oldest = min(oldest, k.round)
		} else {
			kept = append(kept, k)
		}
	}
	slices.SortStableFunc(kept, func(a, b sharedKey) int { return cmp.Compare(b.weight(), a.weight()) })
	size := sizeOf(kept)
	partial := size > room
	for size > room {
		last := len(kept) - 1
		size -= sizeOf(kept[last:])
		oldest = min(oldest, kept[last].round)
		kept = kept[:last]
	}
	out := *d
	out.Keys, out.Scopes = kept, nil
	for _, r := range rounds {
		if r.number <= oldest {
			out.Scopes = r.scopes
		}
	}
	if !partial {
		return &out
	}
	out.Scopes = maps.Clone(out.Scopes)
	for id, p := range out.Scopes {
		p.Partial, p.Handlers = true, 0
		out.Scopes[id] = p
	}
	return &out
}

// What a key is, from what can be left out first: a delay begins anew where everything is
// delivered, and a key that has failed may be that of an object that is deleted.
const (
	delayed = iota
	waits
	failed
)

func (k sharedKey) weight() int {
	switch {
	case k.Failures > 0, k.Unresolved:
		return failed
	case !k.Due.IsZero():
		return delayed
	}
	return waits
}

// sizeOf returns about how many bytes keys take before they are compressed.
func sizeOf(keys sharedKeys) int {
	n := 0
	for _, k := range keys {
		n += len(k.Key) + sizeOfState
	}
	return n
}
