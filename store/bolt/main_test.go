package bolt_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

// childVar is the environment variable with the name of the function that a child process
// of this binary runs instead of the tests. Its arguments are those of the command line.
const childVar = "INFORMCTL_BOLT_CHILD"

// children are the functions that tests run in a child process, because it is killed, may
// die, or needs its own limits.
var children = map[string]func(args []string) error{
	"hold":   childHold,
	"damage": childDamage,

	"write":      childWrite,
	"full":       childFull,
	"stage":      childStage,
	"load":       childLoad,
	"unreadable": childUnreadable,
	"rights":     childRights,
	"shrink":     childShrink,
	"story":      childStory,
	"broken":     childBroken,
	"unread":     childUnread,
	"open":       childOpen,
}

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // logging takes threads, and strace counts by thread
	if name := os.Getenv(childVar); name != "" {
		if err := children[name](os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
