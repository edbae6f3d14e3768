package bolt_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/informctl/informctl/store/bolt"
)

// childVar names the function of children that a process of this binary runs
// instead of the tests; its arguments are the command line's.
const childVar = "INFORMCTL_BOLT_CHILD"

// children are what tests do in another process, because it is to be killed,
// may die, or gets limits of its own.
var children = map[string]func(args []string) error{
	"hold":   childHold,
	"damage": childDamage,

	"damage-background": childDamageInBackground,
	"write":             childWrite,
	"full":              childFull,
	"stage":             childStage,
	"load":              childLoad,
	"unreadable":        childUnreadable,
	"shrink":            childShrink,
	"story":             childStory,
	"broken":            childBroken,
	"unread":            childUnread,
	"open":              childOpen,
}

func TestMain(m *testing.M) {
	bolt.SetMaxRebuilds(1 << 20) // tests damage the same file again and again
	if name := os.Getenv(childVar); name != "" {
		if err := children[name](os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
