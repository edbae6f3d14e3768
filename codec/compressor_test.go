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

// compressors returns a Compressor of each kind. The pods train those with a dictionary.
func compressors(tb testing.TB, pods [][]byte) map[string]codec.Compressor {
	tb.Helper()
	dictionary, err := codec.TrainZstd(pods)
	if err != nil {
		tb.Fatal(err)
	}
	out := map[string]codec.Compressor{}
	for name, d := range map[string][]byte{"plain": nil, "zstd": dictionary, "S2": codec.TrainS2(pods).Dictionary()} {
		if out[name], err = codec.NewCompressor(d); err != nil {
			tb.Fatal(err)
		}
		if !bytes.Equal(out[name].Dictionary(), d) {
			tb.Errorf("%s: another dictionary", name)
		}
	}
	return out
}

// TestCompressors checks that several goroutines can compress and decompress, with and
// without a dictionary, and that a dictionary makes pods much smaller.
func TestCompressors(t *testing.T) {
	pods := podPayloads(t, 300)
	sizes := map[string]int{}
	for name, z := range compressors(t, pods[:200]) {
		for _, pod := range pods[200:] { // the dictionary was not trained with them
			sizes[name] += len(z.Compress(nil, pod))
		}
		var g sync.WaitGroup
		for range 4 {
			g.Go(func() {
				for _, pod := range append(pods, nil, []byte("x"), bytes.Join(pods[:20], nil)) {
					packed := z.Compress([]byte("before"), pod)
					got, err := z.Decompress([]byte("there"), packed[len("before"):])
					if err != nil || !bytes.Equal(got, append([]byte("there"), pod...)) {
						t.Errorf("%s: %d bytes came back as %d: %v", name, len(pod), len(got)-len("there"), err)
					}
					if size := codec.DecompressedSize(packed[len("before"):]); len(pod) > 100 && size != len(pod) {
						t.Errorf("%s: DecompressedSize = %d, want %d", name, size, len(pod))
					}
				}
			})
		}
		g.Wait()
	}
	if 3*sizes["zstd"] > 2*sizes["plain"] || sizes["S2"] > sizes["zstd"] {
		t.Errorf("100 pods take %v bytes", sizes)
	}
}

// TestCompressedDamage checks that damaged input is an error or another payload, and
// never causes a panic or unbounded memory. The record's checksum detects another
// payload.
func TestCompressedDamage(t *testing.T) {
	pods := podPayloads(t, codec.MinSamples)
	for name, z := range compressors(t, pods) {
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
				t.Fatalf("%s: %d bytes of %d", name, len(out), len(spoiled))
			}
			_ = codec.DecompressedSize(spoiled)
		}
		if _, err := z.Decompress(nil, []byte("\xff\xff\xff\xff\x0f and no more")); err == nil {
			t.Errorf("%s: 4 GiB are decompressed", name)
		}
	}
	for _, none := range []string{"x", "no dictionary", "\x37\xA4\x30\xEC but no more than that"} {
		if _, err := codec.NewCompressor([]byte(none)); err == nil {
			t.Errorf("%q was taken for a dictionary", none)
		}
	}
}

// TestTrain checks which algorithm objects are compressed with, and that too few objects
// are an error. Objects with nothing in common must not cause a panic.
func TestTrain(t *testing.T) {
	if _, err := codec.Train(podPayloads(t, codec.MinSamples-1), codec.MaxS2Dictionary); err == nil {
		t.Error("a dictionary of too few objects")
	}
	z, err := codec.Train(podPayloads(t, codec.MinSamples), codec.MaxS2Dictionary)
	if _, isZstd := z.(*codec.Zstd); isZstd || err != nil {
		t.Errorf("pods are compressed with %T, %v", z, err)
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
		z, err := codec.Train(payloads, codec.MaxS2Dictionary)
		if err != nil {
			continue
		}
		if _, isZstd := z.(*codec.Zstd); size > 0 && !isZstd {
			t.Errorf("%s: %d random bytes are compressed with %T", name, size, z)
		}
	}
}

// TestManyZstds checks that many compressors, each of which has compressed something,
// take little memory, and that all of them go on.
func TestManyZstds(t *testing.T) {
	pods := podPayloads(t, 100)
	dictionary, err := codec.TrainZstd(pods)
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

func BenchmarkCompressor(b *testing.B) {
	pods := podPayloads(b, 1000)
	b.Run("train", func(b *testing.B) {
		for b.Loop() {
			if _, err := codec.Train(pods, codec.MaxS2Dictionary); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, z := range compressors(b, pods) {
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
				var err error
				if buf, err = z.Decompress(buf[:0], packed[i%len(packed)]); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}
