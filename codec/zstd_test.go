package codec_test

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/testobjects"
)

// podPayloads returns encoded pods.
func podPayloads(tb testing.TB, n int) [][]byte {
	tb.Helper()
	c, err := codec.For(testobjects.Pod(0, 1))
	if err != nil {
		tb.Fatal(err)
	}
	out := make([][]byte, n)
	for i := range out {
		if out[i], err = c.Encode(testobjects.Pod(i, 1)); err != nil {
			tb.Fatal(err)
		}
	}
	return out
}

// TestZstd checks that several goroutines can compress and decompress, with and without a
// dictionary, and that a dictionary makes pods much smaller.
func TestZstd(t *testing.T) {
	pods := podPayloads(t, 300)
	dictionary, err := codec.TrainDictionary(pods[:200])
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[bool]int{}
	for _, trained := range []bool{false, true} {
		var d []byte
		if trained {
			d = dictionary
		}
		z, err := codec.NewZstd(d)
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range pods[200:] { // the dictionary was not trained with them
			sizes[trained] += len(z.Compress(nil, pod))
		}
		var g sync.WaitGroup
		for range 4 {
			g.Go(func() {
				for _, pod := range append(pods, nil, []byte("x")) {
					packed := z.Compress([]byte("before"), pod)
					got, err := z.Decompress([]byte("there"), packed[len("before"):])
					if err != nil || !bytes.Equal(got, append([]byte("there"), pod...)) {
						t.Errorf("%d bytes came back as %d: %v", len(pod), len(got)-len("there"), err)
					}
					if size := codec.DecompressedSize(packed[len("before"):]); len(pod) > 100 && size != len(pod) {
						t.Errorf("DecompressedSize = %d, want %d", size, len(pod))
					}
				}
			})
		}
		g.Wait()
	}
	if 3*sizes[true] > 2*sizes[false] {
		t.Errorf("100 pods take %d bytes with a dictionary, %d without", sizes[true], sizes[false])
	}
}

// TestZstdDamage checks that damaged input is an error or another payload, and never
// causes a panic or unbounded memory. The record's checksum detects another payload.
func TestZstdDamage(t *testing.T) {
	pods := podPayloads(t, codec.MinSamples)
	dictionary, err := codec.TrainDictionary(pods)
	if err != nil {
		t.Fatal(err)
	}
	z, err := codec.NewZstd(dictionary)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	packed := z.Compress(nil, pods[0])
	for range 5000 {
		spoiled := bytes.Clone(packed[:random.IntN(len(packed)+1)])
		for range random.IntN(4) {
			if len(spoiled) > 0 {
				spoiled[random.IntN(len(spoiled))] ^= byte(1 << random.IntN(8))
			}
		}
		out, err := z.Decompress(nil, spoiled)
		if err == nil && len(out) > 64<<20 {
			t.Fatalf("%d bytes of %d", len(out), len(spoiled))
		}
		_ = codec.DecompressedSize(spoiled)
	}
	if _, err := codec.NewZstd([]byte("no dictionary")); err == nil {
		t.Error("no dictionary was taken for one")
	}
}

// TestTrainDictionaryRefuses checks that too few objects, and objects with nothing in
// common, are an error and do not cause a panic.
func TestTrainDictionaryRefuses(t *testing.T) {
	if _, err := codec.TrainDictionary(podPayloads(t, codec.MinSamples-1)); err == nil {
		t.Error("a dictionary of too few objects")
	}
	random := rand.New(rand.NewPCG(1, 2))
	for name, size := range map[string]int{"empty": 0, "tiny": 3, "small": 40, "random": 500} {
		payloads := make([][]byte, codec.MinSamples)
		for i := range payloads {
			payloads[i] = make([]byte, size)
			for j := range payloads[i] {
				payloads[i][j] = byte(random.Uint32())
			}
		}
		dictionary, err := codec.TrainDictionary(payloads)
		if err != nil {
			continue
		}
		if _, err := codec.NewZstd(dictionary); err != nil {
			t.Errorf("%s: a dictionary that is none: %v", name, err)
		}
	}
}

// TestManyZstds checks that many compressors, each of which has compressed something,
// take little memory, and that all of them go on.
func TestManyZstds(t *testing.T) {
	pods := podPayloads(t, 100)
	dictionary, err := codec.TrainDictionary(pods)
	if err != nil {
		t.Fatal(err)
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	var all []*codec.Zstd
	for range 300 {
		z, err := codec.NewZstd(dictionary)
		if err != nil {
			t.Fatal(err)
		}
		z.Compress(nil, pods[0])
		all = append(all, z)
	}
	if used := int64(heap()) - int64(before); used > 80<<20 {
		t.Errorf("300 compressors take %d bytes", used)
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n, z := range all {
				pod := pods[(n+i)%len(pods)]
				if got, err := z.Decompress(nil, z.Compress(nil, pod)); err != nil || !bytes.Equal(got, pod) {
					t.Errorf("compressor %d: error %v", n, err)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkZstd(b *testing.B) {
	pods := podPayloads(b, 1000)
	dictionary, err := codec.TrainDictionary(pods)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("train", func(b *testing.B) {
		for b.Loop() {
			if _, err := codec.TrainDictionary(pods); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, d := range map[string][]byte{"plain": nil, "dictionary": dictionary} {
		z, err := codec.NewZstd(d)
		if err != nil {
			b.Fatal(err)
		}
		packed, size := make([][]byte, len(pods)), 0
		for i, pod := range pods {
			packed[i] = z.Compress(nil, pod)
			size += len(packed[i])
		}
		b.Run(name+"/compress", func(b *testing.B) {
			i, buf := 0, []byte(nil)
			for b.Loop() {
				buf = z.Compress(buf[:0], pods[i%len(pods)])
				i++
			}
			b.ReportMetric(float64(size)/float64(len(pods)), "B/pod")
		})
		b.Run(name+"/decompress", func(b *testing.B) {
			i, buf := 0, []byte(nil)
			for b.Loop() {
				if buf, err = z.Decompress(buf[:0], packed[i%len(packed)]); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}
