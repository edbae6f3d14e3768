package codec

import (
	"reflect"
	"strings"
)

// FingerprintOf is fingerprint, for tests.
var FingerprintOf = fingerprint

// WalkOf returns what the fingerprint of a type is the hash of.
func WalkOf(t reflect.Type) string {
	var text strings.Builder
	typeWalk{Writer: &text, seen: map[typeIn]int{}}.add(t, "")
	return text.String()
}

// TrainZstd makes a dictionary of zstd.
func TrainZstd(payloads [][]byte) ([]byte, error) { return trainZstd(samplesOf(payloads)) }

// TrainS2 makes a Compressor that uses S2, or returns nil.
func TrainS2(payloads [][]byte) Compressor { return trainS2(samplesOf(payloads), MaxS2Dictionary) }
