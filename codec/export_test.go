package codec

// FingerprintOf is fingerprint.
var FingerprintOf = fingerprint
