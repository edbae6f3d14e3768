package codec

// FingerprintOf is fingerprint, for tests.
var FingerprintOf = fingerprint
