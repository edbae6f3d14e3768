package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/resources"
)

// Choice is what a command line says of resources: it names some, or takes all but some.
type Choice struct {
	Resources []string
	All       bool
	Exclude   []string
	Frequent  bool // --all leaves out events and leases, unless they are named

	excludeTexts []string
}

// Add adds the flags. all describes --all.
func (c *Choice) Add(cmd *cobra.Command, all string) {
	cmd.Flags().BoolVar(&c.All, "all", false, all)
	cmd.Flags().StringArrayVar(&c.excludeTexts, "exclude", nil, "A `RESOURCE` that --all leaves out; repeatable, or separated by commas.")
}

// Parse takes the arguments, which are resources, and those of --exclude.
func (c *Choice) Parse(cmd *cobra.Command, args []string) error {
	for _, arg := range args {
		c.Resources = append(c.Resources, strings.Split(arg, ",")...)
	}
	for _, text := range c.excludeTexts {
		c.Exclude = append(c.Exclude, strings.Split(text, ",")...)
	}
	for _, resource := range slices.Concat(c.Resources, c.Exclude) {
		if resource == "" || strings.Contains(resource, "/") {
			return cmdutil.Usagef(cmd, "%q is no resource", resource)
		}
	}
	return nil
}

// Check refuses what goes not together. does says what the command does with resources.
func (c *Choice) Check(cmd *cobra.Command, does string) error {
	switch {
	case c.All && c.Frequent && slices.ContainsFunc(c.Resources, func(name string) bool { return !resources.IsFrequent(name) && name != "leases" }):
		return cmdutil.Usagef(cmd, "--all %s every resource but events and leases, so no other is named; --exclude leaves some out", does)
	case c.All && !c.Frequent && len(c.Resources) > 0:
		return cmdutil.Usagef(cmd, "--all %s every resource, so none is named; --exclude leaves some out", does)
	case !c.All && len(c.Exclude) > 0:
		return cmdutil.Usagef(cmd, "--exclude goes with --all only")
	case !c.All && len(c.Resources) == 0:
		return cmdutil.Usagef(cmd, "no resource given; name some, or give --all")
	}
	return nil
}

// Excluded returns the resources that Exclude means. One that names its group may not be
// there yet.
func (c *Choice) Excluded(mapper meta.RESTMapper) (sets.Set[string], error) {
	out := sets.New[string]()
	for _, name := range c.Exclude {
		m, err := MappingOf(mapper, name)
		switch {
		case err == nil:
			out.Insert(NameOf(m))
		case !meta.IsNoMatchError(err):
			return nil, err
		case strings.Contains(name, "."):
			out.Insert(name)
		default:
			return nil, fmt.Errorf("--exclude: the server has no resource %q; one that comes later is named with its group", name)
		}
	}
	return out, nil
}
