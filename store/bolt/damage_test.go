package bolt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

var (
	damageScript = script{keys: 160, pad: 150}
	damagesFlag  = flag.Int("damages", 500/fewer, "damaged files that TestDamage makes")
)

const (
	damageBatches  = 6
	damagePerChild = 50
)

// mutate damages a file in one of many ways. i and seed select the way.
func mutate(b []byte, seed uint64, i int) (mutated []byte, what string) {
	rng := rand.New(rand.NewPCG(seed, uint64(i)))
	b = bytes.Clone(b)
	pages := len(b) / pageSize
	page := func() int { return rng.IntN(pages) }
	switch i % 12 {
	case 0, 1:
		n := 1 + rng.IntN(len(b)-1)
		return b[:n], fmt.Sprintf("cut to %d bytes", n)
	case 2:
		p := page()
		clear(b[p*pageSize : (p+1)*pageSize])
		return b, fmt.Sprintf("page %d zeroed", p)
	case 3:
		p, q := page(), page()
		x := bytes.Clone(b[p*pageSize : (p+1)*pageSize])
		copy(b[p*pageSize:(p+1)*pageSize], b[q*pageSize:(q+1)*pageSize])
		copy(b[q*pageSize:], x)
		return b, fmt.Sprintf("pages %d and %d swapped", p, q)
	case 4: // both keep their ids, so only references to them show it
		used := usedPages(b, pageLeaf)
		p, q := used[rng.IntN(len(used))], used[rng.IntN(len(used))]
		x := bytes.Clone(b[p*pageSize+8 : (p+1)*pageSize])
		copy(b[p*pageSize+8:(p+1)*pageSize], b[q*pageSize+8:(q+1)*pageSize])
		copy(b[q*pageSize+8:], x)
		return b, fmt.Sprintf("leaves %d and %d swapped but for their ids", p, q)
	case 5:
		p := page()
		for j := range 16 {
			b[p*pageSize+j] = byte(rng.Uint32())
		}
		return b, fmt.Sprintf("garbage in the header of page %d", p)
	case 6: // fewer or more elements
		used := usedPages(b, pageLeaf|pageBranch)
		p := used[rng.IntN(len(used))]
		count := b[p*pageSize+10:]
		n := binary.LittleEndian.Uint16(count)
		binary.LittleEndian.PutUint16(count, uint16(rng.IntN(int(n)+3)))
		return b, fmt.Sprintf("page %d has %d elements instead of %d", p, binary.LittleEndian.Uint16(count), n)
	case 7: // a bit flip in pages without a checksum, neither bbolt's nor ours
		kinds := append(usedPages(b, pageBranch), freelistPage(b), rootPage(b))
		p := kinds[rng.IntN(len(kinds))]
		return flip(b, p*pageSize+rng.IntN(300), rng)
	case 8: // as a write to a wrong place
		p, q := page(), page()
		copy(b[q*pageSize:(q+1)*pageSize], b[p*pageSize:(p+1)*pageSize])
		return b, fmt.Sprintf("page %d written over page %d", p, q)
	case 9: // a page written over another one, with a correct number
		used := usedPages(b, pageLeaf)
		p, q := used[rng.IntN(len(used))], used[rng.IntN(len(used))]
		copy(b[q*pageSize+8:(q+1)*pageSize], b[p*pageSize+8:(p+1)*pageSize])
		return b, fmt.Sprintf("leaf %d written over leaf %d but for its id", p, q)
	}
	return flip(b, rng.IntN(len(b)), rng)
}

func flip(b []byte, at int, rng *rand.Rand) (mutated []byte, what string) {
	bit := rng.IntN(8)
	b[at] ^= 1 << bit
	return b, fmt.Sprintf("bit %d of byte %d flipped", bit, at)
}

// TestDamage opens damaged files in other processes. No process may die, and every read
// must return what was written or an error (promise 5).
func TestDamage(t *testing.T) { testDamage(t, "damage", *damagesFlag, "plain") }

// TestDamageEncrypted does the same as TestDamage with an encrypted file.
func TestDamageEncrypted(t *testing.T) {
	testDamage(t, "damage", max(*damagesFlag/4, enoughDamages), "encrypted")
}

// enoughDamages is how many mutations a corpus has at least: a quarter of them leave the
// file intact.
const enoughDamages = 40

// damageOptions are the options for opening the files of damage tests, by name.
var damageOptions = map[string]bolt.Options{"plain": {}, "encrypted": allWith(theKey)}

func testDamage(t *testing.T, role string, damages int, options string) {
	t.Parallel()
	_, seed := seeded(t)
	path := filepath.Join(t.TempDir(), "good.db")
	db, s := mustOpenScript(t, path, damageOptions[options])
	applyScript(t, s, damageScript, 1, damageBatches)
	must(t, db.Close())
	good := trimmed(read(t, path))
	must(t, os.WriteFile(path, good, 0o600))
	counts := map[string]int{}
	for next := 0; next < damages; {
		last := min(next+damagePerChild, damages)
		cmd := child(t, role, path, fmt.Sprint(seed), strconv.Itoa(next), strconv.Itoa(last), options)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		for line := range strings.Lines(string(out)) {
			word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			if counts[word]++; word == "WRONG" {
				_, what := mutate(good, seed, next)
				t.Errorf("mutation %d (%s): %s", next, what, rest)
			}
			next++
		}
		if err != nil || next < last {
			_, what := mutate(good, seed, next)
			t.Errorf("mutation %d (%s) ended the process: %v\n%.3000s", next, what, err, stderr.String())
			next++
		}
	}
	t.Logf("outcomes: %v", counts)
	if counts["intact"] == 0 || counts["damaged"] < damages/4 {
		t.Errorf("this corpus proves little: %v", counts)
	}
}

// childDamage opens some mutations of a file and prints a line for each.
func childDamage(args []string) error {
	good, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	seed, _ := strconv.ParseUint(args[1], 10, 64)
	first, _ := strconv.Atoi(args[2])
	last, _ := strconv.Atoi(args[3])
	d := damageChild{accepted: map[string]int{}, opts: damageOptions[args[4]]}
	// The previous batch is correct if a meta page is lost.
	for _, n := range []int{damageBatches, damageBatches - 1} {
		d.accepted[damageScript.want(n)] = n
		d.next[n-damageBatches+1] = damageScript.want(n + 1)
	}
	for i := first; i < last; i++ {
		dir, err := os.MkdirTemp(filepath.Dir(args[0]), "damage")
		if err != nil {
			return err
		}
		path := filepath.Join(dir, "informers.db")
		mutated, _ := mutate(good, seed, i)
		if err := os.WriteFile(path, mutated, 0o600); err != nil {
			return err
		}
		outcome, err := d.open(path, mutated)
		if err != nil {
			outcome = "WRONG " + strings.ReplaceAll(fmt.Sprintf("%.300s", err.Error()), "\n", "; ")
		}
		fmt.Println(outcome)
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

type damageChild struct {
	accepted map[string]int // permitted states of a damaged file, with their batches
	next     [2]string      // those states after one more batch
	opts     bolt.Options
}

// open returns "damaged", "intact" or "refused" if the file was handled correctly.
func (d damageChild) open(path string, mutated []byte) (string, error) {
	n, readErr := d.readOnly(path)
	// The name of the format has no checksum.
	if readErr != nil && strings.Contains(readErr.Error(), "this program reads") {
		if _, _, err := openScript(path, d.opts); err == nil || err.Error() != readErr.Error() {
			return "", fmt.Errorf("read-only: %w; to write: %w", readErr, err)
		}
		return "refused", nil
	}
	if readErr != nil && (!errors.Is(readErr, store.ErrCorrupt) || errors.Is(readErr, errInconsistent)) {
		return "", fmt.Errorf("read-only: %w", readErr)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, mutated) {
		return "", fmt.Errorf("OpenReadOnly changed the file (%w)", err)
	}
	db, s, err := openScript(path, d.opts)
	if err != nil {
		return "", err
	}
	defer func() { _ = db.Close() }()
	got, err := describe(s, damageScript)
	if err != nil {
		return "", err
	}
	if aside := db.SetAside(); aside != "" { // readers may not have read the damaged part
		if kept, err := os.ReadFile(aside); err != nil || !bytes.Equal(kept, mutated) || got != damageScript.want(0) {
			return "", fmt.Errorf("what was set aside is not what was there, or something is left: %w", err)
		}
		return "damaged", nil
	}
	if d.accepted[got] == 0 || readErr != nil || d.accepted[got] != n {
		return "", fmt.Errorf("opened with another state; read-only: batch %d, error %w; state %s", n, readErr, got)
	}
	return "intact", d.goOn(path, db, s, n)
}

// goOn writes one more batch. Damage that no check has found must not do harm then.
func (d damageChild) goOn(path string, db *bolt.DB, s store.Store, n int) error {
	if err := s.Apply(damageScript.batch(n + 1)); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	if err := db.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	db, s, err := openScript(path, d.opts)
	if err != nil {
		return err
	}
	got, err := describe(s, damageScript)
	if err == nil && got != d.next[n-damageBatches+1] {
		err = fmt.Errorf("after another batch (set aside as %q) the state is\n%s", db.SetAside(), got)
	}
	return errors.Join(err, db.Close())
}

func (d damageChild) readOnly(path string) (n int, err error) {
	db, err := bolt.OpenReadOnly(path, bolt.Options{LockTimeout: time.Millisecond, Keys: d.opts.Keys})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	s, err := db.Open(scriptScope(), scriptOptions())
	if err != nil {
		return 0, err
	}
	got, err := describe(s, damageScript)
	if err == nil && d.accepted[got] == 0 {
		err = errors.New("another state")
	}
	return d.accepted[got], err
}

// TestPagesThatGoAround checks that a branch page that leads to itself is found before
// anything follows it, however the file is opened: bbolt would not come to an end.
func TestPagesThatGoAround(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	large := script{keys: 2000, pad: 200}
	scriptFile(t, path, large, 1)
	good := read(t, path)
	pageSize := os.Getpagesize()
	branches := 0
	for at := 2 * pageSize; at < len(good); at += pageSize {
		page := good[at : at+pageSize]
		if binary.LittleEndian.Uint16(page[8:]) != 1 || binary.LittleEndian.Uint64(page) != uint64(at/pageSize) {
			continue // no branch
		}
		bad := bytes.Clone(good)
		firstChild := bad[at+16+8:]
		binary.LittleEndian.PutUint64(firstChild, uint64(at/pageSize))
		other := filepath.Join(t.TempDir(), "bad.db")
		must(t, os.WriteFile(other, bad, 0o600))
		db, err := bolt.OpenReadOnly(other, bolt.Options{})
		if err == nil {
			must(t, db.Close())
			continue // a page that is not used
		}
		branches++
		if !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("page %d: %v, want damage", at/pageSize, err)
		}
	}
	if branches < 3 {
		t.Errorf("%d branches were damaged, want those of headers, objects and indexes", branches)
	}
}
