package bolt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/informctl/informctl/store/bolt"
)

var (
	seedFlag   = flag.Uint64("seed", 0, "seed of crash images and damage; 0 takes another one each time")
	imagesFlag = flag.Int("images", 2000/fewer, "crash images that TestCrashImages makes at least")
)

// seeded returns a source of random numbers for a test, and logs its seed.
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

// changedSectors returns the offsets of the sectors that are not zero, except those in
// the meta pages.
func changedSectors(made []byte) (data []int) {
	for off := 2 * pageSize; off < len(made); off += sector {
		if !bytes.Equal(made[off:off+sector], make([]byte, sector)) {
			data = append(data, off)
		}
	}
	return data
}

// A recording contains the writes to a file, in order.
type recording struct {
	mu      sync.Mutex // a relist writes while the story continues
	image   []byte     // the file before the first write
	commits []recordedCommit
	data    []write // of the current commit
	states  []recordedState
}

type write struct {
	off int
	b   []byte
}

// recordedCommit contains the writes of bbolt before its first sync and before its second
// sync (TestSyncs).
type recordedCommit struct {
	data []write
	meta write
}

// recordedState is the content of the scope after a number of commits.
type recordedState struct {
	commits int
	state   string
}

// record records the writes to an open database from now on.
func record(t *testing.T, path string, db *bolt.DB) *recording {
	t.Helper()
	rec := &recording{image: trimmed(read(t, path))}
	bolt.HookWrites(db, func(next bolt.WriteAt) bolt.WriteAt {
		return func(b []byte, off int64) (int, error) {
			rec.add(write{int(off), bytes.Clone(b)})
			return next(b, off)
		}
	})
	return rec
}

func (r *recording) add(w write) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.data = append(r.data, w); w.off < 2*pageSize {
		last := len(r.data) - 1
		r.commits = append(r.commits, recordedCommit{r.data[:last], w})
		r.data = nil
	}
}

func (r *recording) mark(state string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states = append(r.states, recordedState{len(r.commits), state})
	return nil
}

// after returns the permitted states of the scope when n commits are in the file.
func (r *recording) after(n int) (allowed []string) {
	for i, s := range r.states {
		switch {
		case s.commits == n:
			return []string{s.state}
		case s.commits > n:
			return []string{r.states[i-1].state, s.state}
		}
	}
	return nil
}

// image is a file as a crash during a commit may leave it.
type image struct {
	content []byte
	commits int  // number of commits in the content
	either  bool // one more commit may be in the content
	what    string
}

// metaEnd is the end of the content of a meta page.
const metaEnd = 16 + 64

var tears = []int{0, 1, 16, 24, 32, 40, 48, 56, metaEnd - 17, metaEnd - 8, metaEnd - 1, metaEnd}

// images calls fn with the files that a crash during commit n may leave, including that
// many images with random parts of the data. Before the first sync, any part of the data
// may be on disk; before the second, any part of the meta page.
func (r *recording) images(rng *rand.Rand, n, random int, fn func(image)) {
	disk := bytes.Clone(r.image)
	for _, c := range r.commits[:n] {
		disk = c.meta.to(c.all(disk))
	}
	c := r.commits[n]
	for range random {
		some, share := c.some(rng, c.grown(disk))
		fn(image{some, n, false, fmt.Sprintf("%d %% of the data of commit %d", share, n+1)})
	}
	for _, torn := range tears {
		content := write{c.meta.off, c.meta.b[:torn]}.to(c.all(disk))
		fn(image{content, n, true, fmt.Sprintf("all data and %d bytes of the meta page of commit %d", torn, n+1)})
	}
}

// unsynced returns an image that bbolt's syncs prevent: it has the meta page but only a
// part of the data.
func (r *recording) unsynced(rng *rand.Rand, n int) image {
	disk := bytes.Clone(r.image)
	for _, c := range r.commits[:n] {
		disk = c.meta.to(c.all(disk))
	}
	c := r.commits[n]
	some, _ := c.some(rng, c.grown(disk))
	return image{c.meta.to(some), n + 1, false, "no sync"}
}

func (w write) to(b []byte) []byte {
	copy(b[w.off:], w.b)
	return b
}

// grown returns a copy with the length that the file has after the commit.
func (c recordedCommit) grown(b []byte) []byte {
	pages := int(binary.LittleEndian.Uint64(c.meta.b[16+40:]))
	return append(bytes.Clone(b), make([]byte, max(0, pages*pageSize-len(b)))...)
}

func (c recordedCommit) all(b []byte) []byte {
	b = c.grown(b)
	for _, w := range c.data {
		w.to(b)
	}
	return b
}

// some writes a random share of the data, in units of a sector, a page or a whole write.
func (c recordedCommit) some(rng *rand.Rand, b []byte) (image []byte, percent int) {
	share := rng.Float64()
	unit := []int{sector, pageSize, 1 << 30}[rng.IntN(3)]
	for _, w := range c.data {
		for at := 0; at < len(w.b); at += unit {
			if end := min(at+unit, len(w.b)); rng.Float64() < share {
				write{w.off + at, w.b[at:end]}.to(b)
			}
		}
	}
	return b, int(100 * share)
}

// recordStory runs a story and returns the recording of its writes.
func recordStory(t *testing.T, path string, st story) *recording {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{CommitInterval: time.Hour})
	must(t, err)
	defer func() { must(t, db.Close()) }()
	tell := &teller{db: db}
	must(t, st.begin(tell))
	rec := record(t, path, db)
	must(t, rec.mark(tell.state()))
	tell.written = rec.mark
	must(t, st.tell(tell))
	return rec
}

// TestCrashImages simulates power cuts during the commits of every story (promises 1 and
// 2).
func TestCrashImages(t *testing.T) {
	t.Parallel()
	rng, _ := seeded(t)
	total := 0
	for _, name := range slices.Sorted(maps.Keys(stories)) {
		dir := t.TempDir()
		rec := recordStory(t, filepath.Join(dir, "informers.db"), stories[name])
		script, path, images := stories[name].script, filepath.Join(dir, "image.db"), 0
		random := max(1, *imagesFlag/len(stories)/len(rec.commits)-len(tears)+1)
		for n := range rec.commits {
			rec.images(rng, n, random, func(im image) {
				allowed := rec.after(im.commits)
				if im.either {
					allowed = append(slices.Clone(allowed), rec.after(im.commits+1)...)
				}
				if err := openImage(path, script, im.content, allowed); err != nil {
					t.Fatalf("%s: %s: %v", name, im.what, err)
				}
				images++
			})
		}
		missed := 0
		for range 40 {
			im := rec.unsynced(rng, rng.IntN(len(rec.commits)))
			if openImage(path, script, im.content, rec.after(im.commits)) == nil {
				missed++
			}
		}
		t.Logf("%s: %d images of %d commits; without syncs %d of 40 would be bad", name, images, len(rec.commits), 40-missed)
		if missed == 40 {
			t.Errorf("%s: images that cannot be good are", name)
		}
		total += images
	}
	if total < *imagesFlag {
		t.Errorf("%d images only", total)
	}
	t.Logf("%d images", total)
}

// openImage opens a file with the content. Its scope must have one of the allowed states.
func openImage(path string, script script, content []byte, allowed []string) error {
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return err
	}
	db, s, err := openScript(path, bolt.Options{})
	if err != nil {
		return err
	}
	if aside := db.SetAside(); aside != "" {
		reason, _ := os.ReadFile(aside + ".reason")
		return errors.Join(fmt.Errorf("set aside because of %s", reason), db.Close())
	}
	got, err := describe(s, script)
	if err == nil && !slices.Contains(allowed, got) {
		err = fmt.Errorf("state is\n%swant one of %d:\n%s", got, len(allowed), strings.Join(allowed, "\n"))
	}
	if err == nil {
		err = logAddsUp(s)
	}
	return errors.Join(err, db.Close())
}

var smallWants sync.Map

// wantCached is small.want with a cache, because many images share a state.
func wantCached(n int) string {
	if want, ok := smallWants.Load(n); ok {
		return want.(string)
	}
	want := small.want(n)
	smallWants.Store(n, want)
	return want
}

// TestCrashDuringCreation simulates power cuts while bbolt creates its first four pages.
// The next Open must succeed with any part of them.
func TestCrashDuringCreation(t *testing.T) {
	t.Parallel()
	rng, _ := seeded(t)
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	must(t, err)
	must(t, db.Close())
	made := trimmed(read(t, path))
	sectors := append([]int{0, pageSize}, changedSectors(made)...)
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
