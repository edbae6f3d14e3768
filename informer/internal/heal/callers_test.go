package heal_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/informctl/informctl/informer/internal/heal"
)

// root is the folder of the module.
const root = "../../.."

// method is the name of a method of a package, as the runtime writes it.
var method = regexp.MustCompile(`^([a-z/]+)\.\(\*(\w+)\)\.(\w+)$`)

// TestCallers looks up what the stack of a caller is searched for: a name that is not
// found any more would let such a caller wait for ever.
func TestCallers(t *testing.T) {
	for _, name := range heal.Callers {
		if dir, ok := strings.CutSuffix(name, "."); ok {
			if _, err := os.Stat(filepath.Join(root, dir)); err != nil {
				t.Error(err)
			}
			continue
		}
		m := method.FindStringSubmatch(name)
		if m == nil {
			t.Errorf("%q is not the name of a method", name)
			continue
		}
		files, err := filepath.Glob(filepath.Join(root, m[1], "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		declared := regexp.MustCompile(`(?m)^func \(\w+ \*` + m[2] + `\) ` + m[3] + `\(`)
		found := false
		for _, path := range files {
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			found = found || declared.Match(source)
		}
		if !found {
			t.Errorf("there is no %s", name)
		}
	}
}
