package main

import (
	"context"
	"fmt"
	"strings"
)

// versions contains the resource version of each object in a file, by UID.
type versions map[string]string

// versions reads the resource versions from the columns of a dump.
func (c *informctl) versions(ctx context.Context) (versions, error) {
	lines, err := c.lines(ctx, "dump", "--db", file, "--no-headers", "-o", "custom-columns=UID:.metadata.uid,RV:.metadata.resourceVersion")
	if err != nil {
		return nil, err
	}
	v := versions{}
	for _, line := range lines {
		cells := strings.Fields(line)
		if len(cells) != 2 {
			return nil, fmt.Errorf("informctl dump: %d columns, not 2", len(cells))
		}
		v[cells[0]] = cells[1]
	}
	return v, nil
}

// difference counts the objects that are in only one of two files or have different
// versions.
type difference struct{ created, changed, deleted int }

func (d difference) String() string {
	return fmt.Sprintf("%d created, %d changed, %d deleted", d.created, d.changed, d.deleted)
}

func (v versions) difference(later versions) (d difference) {
	for uid, rv := range later {
		was, ok := v[uid]
		switch {
		case !ok:
			d.created++
		case was != rv:
			d.changed++
		}
	}
	for uid := range v {
		if _, ok := later[uid]; !ok {
			d.deleted++
		}
	}
	return d
}
