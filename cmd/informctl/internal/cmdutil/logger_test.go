package cmdutil

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// TestLevels checks that each line of the log has the level of its meaning.
func TestLevels(t *testing.T) {
	var out bytes.Buffer
	logger := (&LogFlags{}).Logger(&out)
	logger.Info("Listed")
	Warnings(logger).Info("Server cannot be reached, trying again", "server", "s")
	logger.Error(errors.New("full"), "No longer served")
	for _, want := range []string{
		"level=INFO msg=Listed", `level=WARN msg="Server cannot be reached, trying again" server=s`,
		`level=ERROR msg="No longer served" err=full`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}
