package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// spread summarizes the results of all rounds.
type spread struct{ median, least, most float64 }

func spreadOf(values []float64) (spread, bool) {
	if len(values) == 0 {
		return spread{}, false
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return spread{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]}, true
}

// writeReport writes the report and its plots.
func (r *run) writeReport() error {
	var b bytes.Buffer
	shared := r.results.shared()
	conditions := ""
	if len(shared) > 0 {
		conditions = strings.Join(shared, "\n") + "\n\n"
	}
	fmt.Fprintf(&b, introduction, conditions)
	plots, err := r.plots()
	if err != nil {
		return err
	}
	for _, p := range plots {
		fmt.Fprintf(&b, "![%s](%s)\n\n", p.title, p.file)
	}
	r.writeBounds(&b)
	r.writeKinds(&b)
	for _, g := range r.results.Groups {
		r.writeGroup(&b, g, shared)
	}
	text := bytes.TrimRight(b.Bytes(), "\n")
	if err := os.WriteFile(filepath.Join(r.out, "benchmarks.md"), append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

const introduction = `# Benchmarks

client-go's informer and this one, in turn, against the same server: written by
` + "`make bench`" + `, which measures it all again.

%sA load average of more than nothing means that others used the machine, and so does
a wide spread.

## How

Each figure comes from a process of its own with one informer, the namespace index
and one handler that counts. Both informers use the same ListerWatcher, and the
server is another process on the same machine: HTTP/1.1 without TLS and without
compression, streamed lists (WatchList), watches with bookmarks as the API server
sends them, two seconds before the end of a watch. It holds each object encoded and
does next to nothing itself, but it has the same cores. Ours starts cold (no file)
or warm (a copy of the file that a cold start left, in the page cache). Nothing
changed between the two but the server's resource version, so a warm start has
to wait for the bookmark. client-go has one kind of start, which stands beside
both of ours.

- Times begin before the file is opened. A process has settled when for some seconds
  no handler was called and nothing written; CPU time and peaks are until then.
- Peaks are sampled every 20 ms from /proc/self/status. Total RSS includes the mapped
  file, whose pages the kernel can take back; anonymous RSS does not. Heap is
  HeapAlloc after two runs of the garbage collector, and steady RSS is what is left
  when the runtime has given back what it does not need.
- A new list: the server changes some of the objects and ends the open watch with a 410.
  client-go waits for 0.8 to 1.6 s before it lists again. The process had settled and
  collected its garbage.
- Bytes from the server are counted at the client's connections, with headers and as
  they arrive. CPU time of the server is what its process uses while the client's lives,
  in steps of 10 ms.
- Changes are of one annotation and the resource version, of all objects in turn.
  Bytes written are what write calls were given (wchar in /proc/self/io), including what
  is written after the last change and some hundred bytes of requests; write_bytes
  counts whole folios of a file, up to 2 MB for a page of 4 KB. Commits are counted by
  the transaction number in the file; bbolt calls fdatasync twice for each. fsyncs are
  not counted themselves.
- Reads are means of many calls in a process that started warm. "Read before" are 100
  objects again and again; "not read before" are 2,000 others, once each, and 1,000 of
  these are then read in random order.
- A process of informctl is timed from its start to its end, the median of 15 in each
  round, with the file that a cold start left. What "version" takes is the start of any
  command.
- Restart of a controller: one of controller-runtime, with its priority queue, 10 workers
  and a reconcile that reads the object and takes 5 ms, has reconciled every object and
  stops; the server changes 0.1 %% of them, and the controller starts again in the same
  process. Ours has a durable consumer that trickles. The time is until all of the
  changed are reconciled; the rest is until there were 10 reconciles at most in the time
  to settle.
- Pods have all rows, and the other kinds those that depend on the kind. Secrets are
  encrypted in the file.
- Each cell is the median of the rounds, then the least and the greatest. KB and MB are
  1,000 and 1,000,000 bytes.

Figures of more than one informer are on the pages of what they are about: [many kinds in
one process](adopting.md), [clients of a served file](serving.md), and [PostgreSQL](postgres.md)
with its first loads, followers, delays and lists.

`

// shared returns the conditions that are equal in all groups.
func (r *results) shared() []string {
	if len(r.Groups) == 0 {
		return nil
	}
	shared := r.Groups[0].lines()
	for _, g := range r.Groups {
		shared = slices.DeleteFunc(shared, func(line string) bool { return !slices.Contains(g.lines(), line) })
	}
	return shared
}

// writeGroup writes the conditions that are not shared, and the rows with figures.
func (r *run) writeGroup(b *bytes.Buffer, g *group, shared []string) {
	title := g.Kind.title
	if g.Kube != "" {
		title = g.Kind.name + " on a real kube-apiserver " + g.Kube
	}
	fmt.Fprintf(b, "## %s %s\n\n", thousands(float64(g.Objects)), title)
	own := slices.DeleteFunc(g.lines(), func(line string) bool { return slices.Contains(shared, line) })
	if len(own) > 0 {
		fmt.Fprintf(b, "<sub>%s</sub>\n\n", strings.Join(own, " "))
	}
	if g.Kube != "" {
		b.WriteString(aboutKube)
	}
	fmt.Fprintf(b, "%s as they are sent, %s as compact JSON.\n\n", size.format(float64(g.WireBytes)), size.format(float64(g.JSONBytes)))
	b.WriteString("| | client-go | ours | ratio |\n|---|---:|---:|---:|\n")
	for _, row := range rows() {
		clientGo, has := spreadOf(g.ClientGo[row.clientGo])
		ours, oursHas := spreadOf(g.Ours[row.ours])
		if !has && !oursHas || !r.only.MatchString(row.name) {
			continue
		}
		ratio := ""
		if has && oursHas && clientGo.median != 0 {
			ratio = significant(ours.median/clientGo.median, 2)
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", row.title, row.unit.cell(clientGo, has), row.unit.cell(ours, oursHas), ratio)
	}
	b.WriteString("\n")
}

const aboutKube = `The server is kube-apiserver on an etcd that does not call fsync, on the same cores,
with TLS, HTTP/2, a bearer token, RBAC and an audit log. It compresses lists, so bytes
from the server are fewer than bytes of objects, and it uses CPU time for that. The
objects were written through it, the status of a pod as a kubelet does. It also has a
few config maps of its own. Nothing changed before a warm start but an object of another
kind. CPU time of the server is that of kube-apiserver without etcd, with what it does
for itself. New lists, changes and reads are measured with the other server only.

`

// writeBounds writes which bounds are kept. It writes nothing if the group with bounds
// was not measured.
func (r *run) writeBounds(b *bytes.Buffer) {
	groups := r.results.Groups
	i := slices.IndexFunc(groups, func(g *group) bool { return g.Kube == "" && g.Kind.name == boundKind && g.Objects == boundObjects })
	if i < 0 {
		return
	}
	g := groups[i]
	fmt.Fprintf(b, "## Bounds, with %s %s\n\n| | bound | client-go | ours | |\n|---|---|---:|---:|---|\n", thousands(boundObjects), boundKind)
	for _, row := range rows() {
		clientGo, has := spreadOf(g.ClientGo[row.clientGo])
		ours, oursHas := spreadOf(g.Ours[row.ours])
		if !oursHas || !has && row.clientGo != (source{}) {
			continue
		}
		for _, bound := range row.bounds {
			verdict := "**missed**"
			if bound.kept(clientGo.median, ours.median) {
				verdict = "kept"
			}
			left := ""
			if has {
				left = row.unit.format(clientGo.median)
			}
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", row.title, bound.text, left, row.unit.format(ours.median), verdict)
		}
	}
	b.WriteString("\n")
}

// inKinds are the rows of the table with a line for each kind.
var inKinds = []string{"cold-synced", "cold-cpu", "warm-synced", "cold-heap", "get-cold", "list", "saturated", "file-json"}

// writeKinds writes a table with a line for each group: our figure, and what it is of
// client-go's. It writes nothing if there is but one group.
func (r *run) writeKinds(b *bytes.Buffer) {
	groups := slices.DeleteFunc(slices.Clone(r.results.Groups), func(g *group) bool {
		return g.Kube != "" || len(g.Ours[source{"cold", "synced"}]) == 0
	})
	if len(groups) < 2 {
		return
	}
	b.WriteString("## Each kind\n\nOur figures, and in brackets what they are of client-go's.\n\n| | objects |")
	var columns []row
	for _, name := range inKinds {
		all := rows()
		column := all[slices.IndexFunc(all, func(row row) bool { return row.name == name })]
		columns = append(columns, column)
		b.WriteString(" " + column.title + " |")
	}
	b.WriteString("\n|---|---:|" + strings.Repeat("---:|", len(columns)) + "\n")
	for _, g := range groups {
		fmt.Fprintf(b, "| %s | %s |", g.Kind.title, thousands(float64(g.Objects)))
		for _, column := range columns {
			ours, has := spreadOf(g.Ours[column.ours])
			if !has {
				b.WriteString(" |")
				continue
			}
			b.WriteString(" " + column.unit.format(ours.median))
			if clientGo, has := spreadOf(g.ClientGo[column.clientGo]); has && clientGo.median != 0 {
				b.WriteString(" (" + significant(ours.median/clientGo.median, 2) + ")")
			}
			b.WriteString(" |")
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

func (u unit) cell(s spread, has bool) string {
	if !has {
		return ""
	}
	if s.least == s.most {
		return u.format(s.median)
	}
	return fmt.Sprintf("%s (%s–%s)", u.format(s.median), u.format(s.least), u.format(s.most))
}

func (u unit) format(v float64) string {
	scales := map[unit][]struct {
		from float64
		name string
	}{
		duration: {{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}, {1e-9, "ns"}},
		size:     {{1e9, "GB"}, {1e6, "MB"}, {1e3, "KB"}, {1, "B"}},
	}
	for _, scale := range scales[u] {
		if v >= scale.from {
			return significant(v/scale.from, 3) + " " + scale.name
		}
	}
	if u == fraction {
		return significant(v, 3)
	}
	return thousands(v)
}

// significant formats v with at least that many significant digits and all digits before
// the decimal point.
func significant(v float64, digits int) string {
	if v == 0 {
		return "0"
	}
	// Rounding may add a digit before the point, as in 9.999.
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(math.Abs(v), 'e', digits-1, 64), 64)
	after := max(0, digits-1-int(math.Floor(math.Log10(rounded))))
	return strconv.FormatFloat(v, 'f', after, 64)
}

// thousands formats a whole number with commas.
func thousands(v float64) string {
	digits := strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}
