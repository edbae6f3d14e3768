package bolt_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/informctl/informctl/store/bolt"
)

var seedFlag = flag.Uint64("seed", 0, "seed of crash images and damage; 0 takes another one each time")

// seeded returns the source of what a test does at random, and logs its seed.
func seeded(t *testing.T) (*rand.Rand, uint64) {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("run again with -seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0)), seed
}

const sector = 512

// changedSectors returns the offsets at which two files differ, meta pages and
// data apart. A file ends with zeros as long as wanted.
func changedSectors(before, after []byte) (meta, data []int) {
	at := func(b []byte, off int) []byte {
		out := make([]byte, sector)
		if off < len(b) {
			copy(out, b[off:])
		}
		return out
	}
	for off := 0; off < max(len(before), len(after)); off += sector {
		switch {
		case bytes.Equal(at(before, off), at(after, off)):
		case off < 2*pageSize:
			meta = append(meta, off)
		default:
			data = append(data, off)
		}
	}
	return meta, data
}

// TestCrashImages cuts the power inside commits: bbolt writes data, syncs, writes
// a meta page, syncs. Until the first sync any of the data may be on the disk,
// before the second any part of the meta page (promises 1 and 2).
func TestCrashImages(t *testing.T) {
	t.Parallel()
	rng, _ := seeded(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "informers.db")
	_, s := mustOpenScript(t, path, bolt.Options{CommitInterval: time.Hour})
	const commits = 16
	states := [][]byte{read(t, path)} // n: after batch n
	for n := 1; n <= commits; n++ {
		applyScript(t, s, small, n, n)
		states = append(states, trimmed(read(t, path)))
	}
	states[0] = trimmed(states[0])
	images := 0
	for n := 1; n <= commits; n++ {
		images += crashImages(t, rng, filepath.Join(dir, "image.db"), states[n-1], states[n], n)
	}
	if images < 300 {
		t.Errorf("%d images only", images)
	}
	t.Logf("%d images", images)
}

// crashImages opens what a crash inside commit n may leave.
func crashImages(t *testing.T, rng *rand.Rand, path string, before, after []byte, n int) (images int) {
	t.Helper()
	meta, data := changedSectors(before, after)
	if len(meta) != 1 || len(data) == 0 {
		t.Fatalf("commit %d changed sectors %v of the meta pages and %d of data", n, meta, len(data))
	}
	size := max(len(before), len(after))
	apply := func(image []byte, sectors []int) []byte {
		for _, off := range sectors {
			copy(image[off:], after[off:min(off+sector, len(after))])
		}
		return image
	}
	fresh := func() []byte { return append(bytes.Clone(before), make([]byte, size-len(before))...) }
	for range 8 {
		var some []int
		share := rng.Float64()
		for _, off := range data {
			if rng.Float64() < share {
				some = append(some, off)
			}
		}
		wantImage(t, path, apply(fresh(), some), n-1, n-1, fmt.Sprintf("%d of %d data sectors of commit %d", len(some), len(data), n))
		images++
	}
	const metaEnd = 16 + 64
	for _, torn := range []int{0, 1, 16, 24, 32, 40, 48, 56, metaEnd - 17, metaEnd - 8, metaEnd - 1, metaEnd} {
		image := apply(fresh(), data)
		copy(image[meta[0]:], after[meta[0]:meta[0]+torn])
		low := n - 1
		if torn == metaEnd {
			low = n
		}
		wantImage(t, path, image, low, n, fmt.Sprintf("all data and %d bytes of the meta page of commit %d", torn, n))
		images++
	}
	return images
}

// wantImage fails unless a file opens with the state after one of two batches.
func wantImage(t *testing.T, path string, image []byte, low, high int, what string) {
	t.Helper()
	must(t, os.WriteFile(path, image, 0o600))
	db, s, err := openScript(path, bolt.Options{})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer func() { must(t, db.Close()) }()
	if aside := db.SetAside(); aside != "" {
		t.Fatalf("%s: set aside because of %s", what, read(t, aside+".reason"))
	}
	got, err := describe(s, small)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if got != wantCached(low) && got != wantCached(high) {
		t.Fatalf("%s: state is neither that of batch %d nor of %d:\n%s", what, low, high, got)
	}
}

var smallWants sync.Map

// wantCached is small.want, whose answers many images share.
func wantCached(n int) string {
	if want, ok := smallWants.Load(n); ok {
		return want.(string)
	}
	want := small.want(n)
	smallWants.Store(n, want)
	return want
}

// TestCrashDuringCreation cuts the power while bbolt makes its first four
// pages: whatever is left, the next Open begins.
func TestCrashDuringCreation(t *testing.T) {
	t.Parallel()
	rng, _ := seeded(t)
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	must(t, err)
	must(t, db.Close())
	made := trimmed(read(t, path))
	_, data := changedSectors(nil, made)
	sectors := append([]int{0, pageSize}, data...)
	for i := range 30 {
		size := []int{2 * pageSize, 4 * pageSize}[i%2]
		image := make([]byte, size)
		for _, off := range sectors {
			if off+sector <= size && rng.IntN(2) == 0 {
				copy(image[off:], made[off:off+sector])
			}
		}
		must(t, os.WriteFile(path, image, 0o600))
		db, s, err := openScript(path, bolt.Options{})
		if err != nil {
			t.Fatalf("%d of %d bytes: %v", size, len(made), err)
		}
		wantState(t, s, small, 0)
		must(t, db.Close())
	}
}
