// Package cadigest tells servers apart by the CA certificates that a client trusts.
package cadigest

import (
	"crypto/sha256"
	"encoding/hex"
	"os"

	"k8s.io/client-go/rest"
)

// Of returns a digest of the CA certificates in cfg. The error is that of reading their
// file.
func Of(cfg *rest.Config) (string, error) {
	ca := cfg.CAData
	if len(ca) == 0 && cfg.CAFile != "" {
		var err error
		if ca, err = os.ReadFile(cfg.CAFile); err != nil {
			return "", err
		}
	}
	sum := sha256.Sum256(ca)
	return hex.EncodeToString(sum[:8]), nil
}
