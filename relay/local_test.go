package relay

import (
	"crypto/x509"
	"testing"
	"testing/synctest"
	"time"
)

// TestCertificateOfWrongClock checks that clients take the certificate of a process that
// began with a wrong clock when that is set right.
func TestCertificateOfWrongClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which it is the year 2000
		pair, err := certificate("token", nil)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AddCert(c)
		for _, years := range []int{-1, 0, 50} {
			now := time.Now().AddDate(years, 0, 0)
			if _, err := c.Verify(x509.VerifyOptions{DNSName: "localhost", Roots: roots, CurrentTime: now}); err != nil {
				t.Errorf("at %s: %v", now, err)
			}
		}
	})
}
