package testobjects

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Namespaces is the number of namespaces, ns-00 to ns-49, that contain objects besides
// "default".
const Namespaces = 50

// suffixAlphabet contains the characters of names that the API server generates: no
// vowels and no look-alikes.
const suffixAlphabet = "bcdfghjklmnpqrstvwxz2456789"

// epoch is the time of the oldest object.
var epoch = time.Date(2026, time.March, 2, 8, 0, 0, 0, time.UTC)

// The streams separate the random sources of different kinds of objects.
const (
	streamPod uint64 = iota + 1
	streamWorkload
	streamConfigMap
	streamSecret
	streamWidget
	streamNode
	streamEndpointSlice
)

// source is a deterministic source of random values.
type source struct{ *rand.Rand }

func newSource(stream uint64, i int, seed int64) source {
	return source{rand.New(rand.NewPCG(uint64(seed), stream<<48^uint64(i)))}
}

func (s source) bytes(n int) []byte {
	b := make([]byte, (n+7)/8*8)
	for at := 0; at < n; at += 8 {
		v := s.Uint64()
		for k := range 8 {
			b[at+k] = byte(v >> (8 * k))
		}
	}
	return b[:n]
}

func (s source) hex(n int) string {
	return hex.EncodeToString(s.bytes((n + 1) / 2))[:n]
}

func (s source) uid() types.UID {
	h := s.hex(32)
	return types.UID(h[:8] + "-" + h[8:12] + "-4" + h[13:16] + "-a" + h[17:20] + "-" + h[20:])
}

func (s source) pick(words []string) string {
	return words[s.IntN(len(words))]
}

// after returns a time up to limit later than t, in whole seconds as the API server
// stores it.
func (s source) after(t metav1.Time, limit time.Duration) metav1.Time {
	return metav1.NewTime(t.Add(time.Duration(s.Int64N(int64(limit/time.Second))) * time.Second))
}

// suffix returns five letters like those that the API server appends to generated names.
// They differ for each i below 27^5.
func suffix(i int) string {
	const base = len(suffixAlphabet)
	// The factor has no divisor in common with 27, so this is a permutation.
	n := (i*7654321 + 1234567) % (base * base * base * base * base)
	var b [5]byte
	for k := range b {
		b[k] = suffixAlphabet[n%base]
		n /= base
	}
	return string(b[:])
}

// namespaceOf puts every 50th object into "default" and spreads the others over the
// numbered namespaces.
func namespaceOf(i int) string {
	if i%50 == 0 {
		return metav1.NamespaceDefault
	}
	return fmt.Sprintf("ns-%02d", (i-i/50-1)%Namespaces)
}

// NamespaceNames returns the names of all namespaces that objects are in, "default"
// first.
func NamespaceNames() []string {
	names := []string{metav1.NamespaceDefault}
	for n := range Namespaces {
		names = append(names, fmt.Sprintf("ns-%02d", n))
	}
	return names
}

// objectMeta returns the metadata that an API server gives to object i when it is
// created.
func (s source) objectMeta(i int, namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:              name,
		Namespace:         namespace,
		UID:               s.uid(),
		ResourceVersion:   strconv.Itoa(100_000 + 7*i + s.IntN(7)),
		CreationTimestamp: s.after(metav1.NewTime(epoch), 90*24*time.Hour),
	}
}

// ClearServerFields empties the fields of obj that an API server sets, so that obj can be
// created on one. It writes to obj, which must not be in use elsewhere.
func ClearServerFields(obj metav1.Object) {
	obj.SetUID("")
	obj.SetResourceVersion("")
	obj.SetGeneration(0)
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetManagedFields(nil)
}
