package codec

// FingerprintOf is fingerprint, for tests.
var FingerprintOf = fingerprint

// TrainZstd makes a dictionary of zstd.
func TrainZstd(payloads [][]byte) ([]byte, error) { return trainZstd(samplesOf(payloads)) }

// TrainS2 makes a Compressor that uses S2, or returns nil.
func TrainS2(payloads [][]byte) Compressor { return trainS2(samplesOf(payloads)) }
