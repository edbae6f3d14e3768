package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/informctl/informctl/e2e/program"
)

// queries is how often a command is run.
const queries = 15

// query measures informctl, a process for each call: the query of one object by its name,
// and the command that does nothing but start.
func (c *child) query(ctx context.Context) error {
	obj, err := meta.Accessor(c.kind.object(0))
	if err != nil {
		return err
	}
	for name, args := range map[string][]string{
		"name":    {"query", c.kind.gvr.Resource, obj.GetName(), "-n", obj.GetNamespace(), "--db", c.File},
		"nothing": {"version"},
	} {
		took := make([]time.Duration, queries)
		for i := range took {
			began := time.Now()
			if _, err := exec.CommandContext(ctx, c.Command, args...).Output(); err != nil {
				return fmt.Errorf("informctl %s: %w", args[0], program.OutputError(err))
			}
			took[i] = time.Since(began)
		}
		slices.Sort(took)
		c.figures[name] = took[queries/2].Seconds()
	}
	return nil
}
