package codec_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

var seedFlag = flag.Int64("codec.seed", 0, "seed of the round trip fuzz, 0 for a new one")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
