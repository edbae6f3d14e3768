package main

import (
	"fmt"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// picture is one plot over the number of pods.
type picture struct {
	file, title, axis string
	scale             float64 // what one on the axis is
	lines             []line
}

// line is one row's side in it.
type line struct {
	name string
	ours bool
	from source
}

func (r *run) plots() ([]picture, error) {
	all := []picture{
		{"starts.svg", "Time until the last initial add, over the number of pods", "seconds", 1, []line{
			{"client-go", false, source{"cold", "added"}},
			{"ours, cold", true, source{"cold", "added"}},
			{"ours, warm", true, source{"warm", "added"}},
		}},
		{"memory.svg", "Steady anonymous RSS, over the number of pods", "MB", mb, []line{
			{"client-go", false, source{"cold", "steadyAnon"}},
			{"ours, cold", true, source{"cold", "steadyAnon"}},
			{"ours, warm", true, source{"warm", "steadyAnon"}},
		}},
	}
	var drawn []picture
	for _, p := range all {
		ok, err := r.draw(p)
		if err != nil {
			return nil, fmt.Errorf("draw %s: %w", p.file, err)
		}
		if ok {
			drawn = append(drawn, p)
		}
	}
	return drawn, nil
}

// draw reports whether there was something to draw.
func (r *run) draw(pic picture) (bool, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = pic.title, boundKind, pic.axis
	p.X.Min, p.Y.Min = 0, 0
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	var lines []any
	for _, l := range pic.lines {
		var points plotter.XYs
		for _, g := range r.groups {
			values := g.clientGo[l.from]
			if l.ours {
				values = g.ours[l.from]
			}
			if s, ok := spreadOf(values); ok && g.kind.name == boundKind {
				points = append(points, plotter.XY{X: float64(g.objects), Y: s.median / pic.scale})
			}
		}
		if len(points) > 0 {
			lines = append(lines, l.name, points)
		}
	}
	if len(lines) == 0 {
		return false, nil
	}
	if err := plotutil.AddLinePoints(p, lines...); err != nil {
		return false, err
	}
	return true, p.Save(16*vg.Centimeter, 9*vg.Centimeter, filepath.Join(r.out, pic.file))
}
