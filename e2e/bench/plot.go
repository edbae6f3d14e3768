package main

import (
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	panelWidth  = 9.5 * vg.Centimeter
	panelHeight = 8 * vg.Centimeter
	legendWidth = 6 * vg.Centimeter
	panelGap    = 0.8 * vg.Centimeter
	columns     = 3 // of panels
	textSize    = font.Length(10)
)

// picture is a plot over the number of objects, with a panel for each kind that was
// measured with several numbers, in rows.
type picture struct {
	file, title, axis string
	scale             float64 // value of 1 on the axis
	log               bool    // for figures that differ by orders of magnitude
	lines             []line
}

// line is one side of a row in a picture.
type line struct {
	name   string
	ours   bool
	from   source
	color  color.Color
	shape  draw.GlyphDrawer
	dashed bool
}

func (r *run) plots() ([]picture, error) {
	clientGo := func(from source) line {
		return line{"client-go", false, from, plotutil.Color(0), plotutil.Shape(0), false}
	}
	cold := func(from source) line {
		return line{"ours, cold", true, from, plotutil.Color(2), plotutil.Shape(1), false}
	}
	warm := func(from source) line {
		return line{"ours, warm", true, from, plotutil.Color(1), plotutil.Shape(2), false}
	}
	stock, durable := clientGo(source{"restart", "changed"}), warm(source{"restart", "changed"})
	stock.name, durable.name = "controller-runtime", "ours, durable"
	synced := warm(source{"warm", "synced"})
	synced.name, synced.dashed = "ours, warm: HasSynced", true
	all := []picture{
		{
			"starts.svg", "Seconds from the start to the last initial add, over the number of objects", "seconds to the last initial add", 1, false,
			[]line{clientGo(source{"cold", "added"}), cold(source{"cold", "added"}), warm(source{"warm", "added"}), synced},
		},
		{
			"memory.svg", "Steady anonymous RSS in MB, over the number of objects, on logarithmic axes", "steady anonymous RSS in MB", mb, true,
			[]line{clientGo(source{"cold", "steadyAnon"}), cold(source{"cold", "steadyAnon"}), warm(source{"warm", "steadyAnon"})},
		},
		{
			"restarts.svg", "Seconds from the restart of a controller until what was changed meanwhile, 0.1 % of all objects, is reconciled, " +
				"over the number of objects, on logarithmic axes", "seconds until they are reconciled", 1, true,
			[]line{stock, durable},
		},
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

// draw reports whether it has drawn anything.
func (r *run) draw(pic picture) (bool, error) {
	var panels []*plot.Plot
	for _, k := range kinds() {
		p, err := r.results.panel(pic, k)
		if err != nil {
			return false, err
		}
		if p != nil {
			panels = append(panels, p)
		}
	}
	if len(panels) == 0 {
		return false, nil
	}
	grid := slices.Collect(slices.Chunk(panels, columns))
	for last := len(grid) - 1; last > 0 && len(grid[last]) < columns; {
		grid[last] = append(grid[last], nil)
	}
	width := panelWidth*vg.Length(len(grid[0])) + legendWidth
	canvas, err := draw.NewFormattedCanvas(width, panelHeight*vg.Length(len(grid)), strings.TrimPrefix(filepath.Ext(pic.file), "."))
	if err != nil {
		return false, err
	}
	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(whole.Path())
	tiles := draw.Tiles{
		Rows: len(grid), Cols: len(grid[0]),
		PadX: panelGap, PadY: panelGap, PadTop: panelGap, PadBottom: panelGap, PadLeft: panelGap,
	}
	for row, places := range plot.Align(grid, tiles, draw.Crop(whole, 0, -legendWidth, 0, 0)) {
		for i, at := range places {
			if panel := grid[row][i]; panel != nil {
				panel.Draw(at)
			}
		}
	}
	legend, err := pic.legend()
	if err != nil {
		return false, err
	}
	legend.Draw(draw.Crop(whole, width-legendWidth+panelGap, 0, 0, -2*panelGap))
	f, err := os.Create(filepath.Join(r.out, pic.file))
	if err != nil {
		return false, err
	}
	_, err = canvas.WriteTo(f)
	return true, errors.Join(err, f.Close())
}

// panel returns nil unless several numbers of objects were measured.
func (r *results) panel(pic picture, k kind) (*plot.Plot, error) {
	p := plot.New()
	// A label next to a logarithmic axis would reduce the height of the plot.
	p.Title.Text, p.X.Label.Text = k.title+"\n"+pic.axis, "objects"
	p.Title.TextStyle.Font.Size, p.X.Label.TextStyle.Font.Size = textSize, textSize
	var sizes plot.ConstantTicks
	most := 0.0
	least := math.Inf(1)
	p.Add(plotter.NewGrid())
	for _, l := range pic.lines {
		var points plotter.XYs
		for _, g := range r.Groups {
			values := g.ClientGo[l.from]
			if l.ours {
				values = g.Ours[l.from]
			}
			s, ok := spreadOf(values)
			if !ok || g.Kind.name != k.name || g.Kube != "" {
				continue
			}
			at := plotter.XY{X: float64(g.Objects), Y: s.median / pic.scale}
			points = append(points, at)
			least, most = min(least, at.Y), max(most, at.Y)
			if !slices.ContainsFunc(sizes, func(t plot.Tick) bool { return t.Value == at.X }) {
				sizes = append(sizes, plot.Tick{Value: at.X, Label: thousands(at.X)})
			}
		}
		if len(points) == 0 {
			continue
		}
		drawn, dots, err := l.draw(points)
		if err != nil {
			return nil, err
		}
		p.Add(drawn, dots)
	}
	if len(sizes) < 2 {
		return nil, nil
	}
	p.X.Tick.Marker = sizes
	p.X.Min, p.X.Max = 0, 1.05*p.X.Max
	p.Y.Min, p.Y.Max, p.Y.Tick.Marker = 0, 1.05*most, plot.TickerFunc(ticks)
	if pic.log {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(logTicks)
		p.Y.Min, p.Y.Max = math.Pow10(int(math.Floor(math.Log10(least)))), math.Pow10(int(math.Ceil(math.Log10(most))))
		p.X.Scale, p.X.Min = plot.LogScale{}, p.X.Max
		for _, t := range sizes {
			p.X.Min = min(p.X.Min, t.Value/1.2)
		}
		return p, nil
	}
	// On a linear axis a label would cover that of a much larger number.
	for i := range sizes {
		if slices.ContainsFunc(sizes, func(t plot.Tick) bool { return t.Value > sizes[i].Value && t.Value-sizes[i].Value < p.X.Max/10 }) {
			sizes[i].Label = ""
		}
	}
	return p, nil
}

// ticks returns gonum's ticks, labelled without zeros after the decimal point.
func ticks(least, most float64) []plot.Tick {
	all := plot.DefaultTicks{}.Ticks(least, most)
	for i, t := range all {
		if t.Label != "" {
			all[i].Label = strconv.FormatFloat(t.Value, 'g', 4, 64)
		}
	}
	return all
}

// logTicks returns ticks with a label at each power of ten.
func logTicks(least, most float64) []plot.Tick {
	ticks := plot.LogTicks{Prec: -1}.Ticks(least, most)
	for i, t := range ticks {
		switch {
		case t.Label == "":
		case t.Value < 1:
			ticks[i].Label = strconv.FormatFloat(t.Value, 'g', 1, 64)
		default:
			ticks[i].Label = thousands(t.Value)
		}
	}
	return ticks
}

func (l line) draw(points plotter.XYs) (*plotter.Line, *plotter.Scatter, error) {
	drawn, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return nil, nil, err
	}
	drawn.Color, drawn.Width, dots.Color, dots.Shape = l.color, vg.Points(1.2), l.color, l.shape
	if l.dashed {
		drawn.Dashes = plotutil.Dashes(1)
	}
	return drawn, dots, nil
}

// legend returns a legend that is drawn next to the panels, where it hides no line.
func (pic picture) legend() (plot.Legend, error) {
	legend := plot.NewLegend()
	legend.Top, legend.Left = true, true
	legend.TextStyle.Font.Size, legend.Padding = textSize, vg.Points(2)
	for _, l := range pic.lines {
		drawn, dots, err := l.draw(plotter.XYs{{}})
		if err != nil {
			return legend, err
		}
		legend.Add(l.name, drawn, dots)
	}
	return legend, nil
}
