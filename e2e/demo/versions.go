package main

import (
	"context"
	"fmt"
	"strings"
)

// versions contains the resource version of each object in a file, by UID.
type versions map[string]string

// versions reads the resource versions from the columns of a wide dump.
func (c *informctl) versions(ctx context.Context) (versions, error) {
	lines, err := c.lines(ctx, "dump", "--db", file, "-o", "wide")
	if err != nil {
		return nil, err
	}
	header := strings.Fields(lines[0])
	rv, uid := -1, -1
	for i, name := range header {
		switch name {
		case "RV":
			rv = i
		case "UID":
			uid = i
		}
	}
	if rv < 0 || uid < 0 {
		return nil, fmt.Errorf("informctl dump -o wide: no columns RV and UID in %q", lines[0])
	}
	v := versions{}
	for _, line := range lines[1:] {
		cells := strings.Fields(line)
		if len(cells) != len(header) {
			return nil, fmt.Errorf("informctl dump -o wide: %d columns, not %d", len(cells), len(header))
		}
		v[cells[uid]] = cells[rv]
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
