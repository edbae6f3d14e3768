package main

import (
	"slices"
	"strings"
)

// unit is the format of a figure.
type unit int

const (
	duration unit = iota
	size
	count
	fraction
)

// source is the scenario and the name of a figure.
type source struct{ scenario, figure string }

// row is one line of a table: a figure of client-go next to ours.
type row struct {
	name     string
	title    string
	unit     unit
	clientGo source // zero if client-go has no such figure
	ours     source // zero if ours has no such figure
	bounds   []bound
}

// bound is a limit for our figure with boundObjects pods.
type bound struct {
	text string
	kept func(clientGo, ours float64) bool
}

const (
	boundKind    = "pods"
	boundObjects = 50_000
	kb           = 1e3
	mb           = 1e6
)

func atMost(text string, limit float64) []bound {
	return []bound{{text, func(_, ours float64) bool { return ours <= limit }}}
}

func below(text string, limit float64) []bound {
	return []bound{{text, func(_, ours float64) bool { return ours < limit }}}
}

func timesAtMost(text string, limit float64) []bound {
	return []bound{{text, func(clientGo, ours float64) bool { return ours <= limit*clientGo }}}
}

// same returns a row whose figure has the same name on both sides.
func same(name, title string, u unit, scenario, figure string, bounds []bound) row {
	return row{name, title, u, source{scenario, figure}, source{scenario, figure}, bounds}
}

// against returns a row with a start of ours next to client-go's cold start, the only
// kind that client-go has.
func against(name, title string, u unit, scenario, figure string, bounds []bound) row {
	return row{name, title, u, source{"cold", figure}, source{scenario, figure}, bounds}
}

func rows() []row {
	return slices.Concat(startRows(), runningRows(), readRows(), restartRows())
}

func restartRows() []row {
	before := "restart of a controller, 0.1 % changed: "
	return []row{
		same("restart-changed", before+"until they are reconciled", duration, "restart", "changed", nil),
		same("restart-reconciles", before+"reconciles", count, "restart", "reconciles", nil),
		same("restart-requests", before+"requests", count, "restart", "requests", nil),
		same("restart-bytes", before+"bytes from the server", size, "restart", "bytes", nil),
		same("restart-cpu", before+"CPU time", duration, "restart", "cpu", nil),
	}
}

func startRows() []row {
	return []row{
		same("cold-synced", "cold start: HasSynced", duration, "cold", "synced", timesAtMost("0.9 times client-go's", 0.9)),
		same("cold-added", "cold start: last initial add", duration, "cold", "added", timesAtMost("1.15 times client-go's", 1.15)),
		against("warm-synced", "warm start: HasSynced, caught up", duration, "warm", "synced", atMost("2.0 s", 2)),
		against("warm-added", "warm start: last initial add", duration, "warm", "added", atMost("1.25 s, 25 µs an object", 1.25)),
		against("loaded-synced", "warm start: HasSynced, `Loaded`", duration, "loaded", "synced", atMost("150 ms", 0.150)),
		against("loaded-added", "warm start: last initial add, `Loaded`", duration, "loaded", "added", nil),
		same("cold-bytes", "cold start: bytes from the server", size, "cold", "bytes", nil),
		same("cold-requests", "cold start: requests", count, "cold", "requests", nil),
		against("warm-bytes", "warm start: bytes from the server", size, "warm", "bytes", atMost("64 KB", 64*kb)),
		against("warm-requests", "warm start: requests", count, "warm", "requests", nil),
		same("cold-cpu", "cold start: CPU time", duration, "cold", "cpu", timesAtMost("client-go's", 1)),
		against("warm-cpu", "warm start: CPU time", duration, "warm", "cpu", nil),
		same("cold-server-cpu", "cold start: CPU time of the server", duration, "cold", "serverCPU", nil),
		against("warm-server-cpu", "warm start: CPU time of the server", duration, "warm", "serverCPU", nil),
		same("cold-heap", "heap after GC, cold start", size, "cold", "heap", atMost("10 MB", 10*mb)),
		against("warm-heap", "heap after GC, warm start", size, "warm", "heap", atMost("10 MB", 10*mb)),
		same("read-heap", "heap after GC, after reads of everything", size, "reads", "heap", atMost("96 MB", 96*mb)),
		same("cold-peak", "peak anonymous RSS, cold start", size, "cold", "peakAnon", atMost("100 MB", 100*mb)),
		against("warm-peak", "peak anonymous RSS, warm start", size, "warm", "peakAnon", nil),
		same("cold-steady", "steady anonymous RSS, cold start", size, "cold", "steadyAnon", nil),
		against("warm-steady", "steady anonymous RSS, warm start", size, "warm", "steadyAnon", nil),
		same("read-steady", "steady anonymous RSS, after reads of everything", size, "reads", "steadyAnon", nil),
		same("cold-peak-total", "peak total RSS, cold start", size, "cold", "peakTotal", nil),
		against("warm-peak-total", "peak total RSS, warm start", size, "warm", "peakTotal", nil),
		same("cold-steady-total", "steady total RSS, cold start", size, "cold", "steadyTotal", nil),
		against("warm-steady-total", "steady total RSS, warm start", size, "warm", "steadyTotal", nil),
	}
}

func runningRows() []row {
	var all []row
	for _, changed := range []string{"0", "1", "100"} {
		scenario := "relist" + changed
		before := "new list after a 410, " + changed + " % changed: "
		var written, notified []bound
		if changed == "1" {
			written = below("under 10 MB", 10*mb)
			notified = []bound{{"only for the changed", func(_, ours float64) bool { return ours <= boundObjects/100 }}}
		}
		all = append(all,
			same(scenario+"-time", before+"consistent", duration, scenario, "consistent", nil),
			same(scenario+"-peak", before+"peak anonymous RSS", size, scenario, "relistAnon", atMost("150 MB", 150*mb)),
			row{name: scenario + "-written", title: before + "written", unit: size, ours: source{scenario, "written"}, bounds: written},
			same(scenario+"-notifications", before+"notifications", count, scenario, "notifications", notified),
		)
	}
	atLeast := []bound{{"0.95 times client-go's at least", func(clientGo, ours float64) bool { return ours >= 0.95*clientGo }}}
	near := slices.Concat(atMost("2.5 ms", 0.0025), timesAtMost("4 times client-go's", 4))
	all = append(all,
		same("saturated", "changes, as fast as it goes: each second", count, "saturated", "eventsPerSecond", atLeast),
		same("p50", "changes, 1,000/s: from server to handler, median", duration, "rate1000", "p50", nil),
		same("p99", "changes, 1,000/s: from server to handler, 99 %", duration, "rate1000", "p99", near),
	)
	for _, rate := range []string{"10", "100", "1000"} {
		var written []bound
		if rate == "100" {
			written = below("under 3 MB", 3*mb)
		}
		scenario, before := "rate"+rate, "changes, "+strings.Replace(rate, "1000", "1,000", 1)+"/s: "
		all = append(all,
			row{name: scenario + "-written", title: before + "written each second", unit: size, ours: source{scenario, "writtenPerSecond"}, bounds: written},
			row{name: scenario + "-commits", title: before + "commits each second, two fsyncs each", unit: fraction, ours: source{scenario, "commitsPerSecond"}},
		)
	}
	return all
}

func readRows() []row {
	decoded := func(name, title, figure string, bounds []bound) row {
		return row{"decoded-" + name, "everything decoded: " + title, duration, source{"reads", figure}, source{"decoded", figure}, bounds}
	}
	return []row{
		same("get-hot", "Get, read before", duration, "reads", "getHot", timesAtMost("2.0 times client-go's", 2)),
		same("get-one", "Get, one object in a loop", duration, "reads", "getOne", nil),
		same("get-random", "Get, read before, in random order", duration, "reads", "getRandom", nil),
		same("get-cold", "Get, not read before", duration, "reads", "getCold", atMost("45 µs", 45e-6)),
		same("list", "List of all", duration, "reads", "listAll", atMost("1.5 s, 60 µs an object on two cores", 1.5)),
		same("list-label", "List by a label", duration, "reads", "byLabel", nil),
		same("by-index", "ByIndex of namespace `default`", duration, "reads", "byIndex", nil),
		same("keys", "IndexKeys of namespace `default`", duration, "reads", "keys", atMost("60 µs", 60e-6)),
		{
			name: "longest-read", title: "longest read transaction of all these", unit: duration, ours: source{"reads", "longestRead"},
			bounds: atMost("100 ms", 0.1),
		},
		decoded("get", "Get", "getHot", timesAtMost("1.2 times client-go's", 1.2)),
		decoded("list", "List of all", "listAll", timesAtMost("1.2 times client-go's", 1.2)),
		decoded("label", "List by a label", "byLabel", nil),
		decoded("by-index", "ByIndex of namespace `default`", "byIndex", nil),
		{name: "query", title: "`informctl query pods NAME`, a process", unit: duration, ours: source{"query", "name"}},
		{name: "query-nothing", title: "`informctl version`, a process", unit: duration, ours: source{"query", "nothing"}},
		{name: "file", title: "size of the file", unit: size, ours: source{"cold", "file"}},
		{
			name: "file-json", title: "size of the file, of the objects' compact JSON", unit: fraction, ours: source{"cold", "fileOfJSON"},
			bounds: atMost("0.200", 0.200),
		},
	}
}
