package resources

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
)

// Wanted is one resource of a command line and the names of its objects.
type Wanted struct {
	Resource string   // as the user wrote it; "" means all
	Names    []string // empty means all
}

// ParseWanted parses the arguments in the same way as kubectl: RESOURCE[,RESOURCE...]
// [NAME...], or RESOURCE/NAME...
func ParseWanted(cmd *cobra.Command, args []string) ([]Wanted, error) {
	if len(args) == 0 {
		return []Wanted{{}}, nil
	}
	var out []Wanted
	if strings.Contains(args[0], "/") {
		for _, arg := range args {
			resource, name, ok := strings.Cut(arg, "/")
			if !ok || resource == "" || name == "" || strings.Contains(name, "/") {
				return nil, cmdutil.Usagef(cmd, "%q is not RESOURCE/NAME", arg)
			}
			out = append(out, Wanted{resource, []string{name}})
		}
		return out, nil
	}
	for _, name := range args[1:] {
		if name == "" || strings.Contains(name, "/") {
			return nil, cmdutil.Usagef(cmd, "%q is no name; write RESOURCE NAME or RESOURCE/NAME", name)
		}
	}
	for resource := range strings.SplitSeq(args[0], ",") {
		if resource == "" {
			return nil, cmdutil.Usagef(cmd, "%q names an empty resource", args[0])
		}
		out = append(out, Wanted{resource, args[1:]})
	}
	return out, nil
}
