package informer_test

import (
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// generator generates scripts on which both informers can be compared.
type generator struct {
	*rapid.T
	script  []string
	resyncs bool
	streams bool            // the server streams lists
	fails   bool            // the transform fails for bad objects
	held    bool            // the server does not answer lists
	bad     map[string]bool // those that exist
}

func (g *generator) pick(label string, from ...string) string {
	return rapid.SampledFrom(from).Draw(g.T, label)
}

func (g *generator) add(words ...string) { g.script = append(g.script, strings.Join(words, " ")) }

func drawScript(rt *rapid.T) []string {
	g := &generator{T: rt, bad: map[string]bool{}}
	server := g.pick("server", "", "", "nobookmarks", "opaque", "nostream", "nostream nobookmarks", "pages")
	if server != "" {
		g.add("server", server)
	}
	g.streams = !strings.HasPrefix(server, "nostream") && server != "pages"
	if period := g.pick("resync", "", "", "10s", "30s"); period != "" {
		g.resyncs = true
		g.add("resync", period)
	}
	if transform := g.pick("transform", "", "", "", "strip", "label", "rename", "fail"); transform != "" {
		g.fails = transform == "fail"
		g.add("transform", transform)
	}
	for range rapid.IntRange(0, 8).Draw(rt, "before") {
		g.before()
	}
	if g.pick("use", "run", "run", "run", "run", "run", "run", "run", "run", "run", "do not run") != "run" {
		for range rapid.IntRange(1, 8).Draw(rt, "writes") {
			g.write()
		}
		return g.script
	}
	if g.resyncs {
		g.add("wait 1ms")
	}
	if g.pick("listing", "fast", "fast", "fast", "slow") == "slow" {
		g.held = true
		g.add("hold")
	}
	if !g.held && !g.fails && g.pick("beginning", "good", "good", "good", "bad") == "bad" {
		g.add(g.pick("kind", "fail", "instream", "faillist"), g.code())
	}
	g.add("run")
	for range rapid.IntRange(0, 12).Draw(rt, "steps") {
		g.step()
		if g.held && g.pick("list", "released", "held", "held") == "released" {
			g.held = false
			g.add("release")
		}
	}
	return g.script
}

// write draws a write to an informer that does not run.
func (g *generator) write() {
	switch g.pick("write", "store", "store", "store", "unstore", "index") {
	case "store":
		g.add("store", g.name(), g.value())
	case "unstore":
		g.add("unstore", g.name())
	case "index":
		g.addIndex()
	}
}

func (g *generator) name() string    { return g.pick("name", "a", "b", "c", "other/a", "/a") }
func (g *generator) value() string   { return g.pick("value", "1", "2", "3") }
func (g *generator) handler() string { return g.pick("handler", "h1", "h2", "h3") }
func (g *generator) kind() string {
	return g.pick("kind", "value", "both", "twice", "odd", "empty", "strange", "none")
}

func (g *generator) code() string {
	return g.pick("code", "410", "429", "500", "503", "403", "eof", "empty")
}

// before draws a line that comes before run.
func (g *generator) before() {
	kinds := []string{"put", "put", "put", "put", "handler", "handler", "remove", "index", "block"}
	if g.fails && g.streams { // client-go's list in pages would never end
		kinds = append(kinds, "bad", "bad")
	}
	switch g.pick("before", kinds...) {
	case "bad":
		name := g.name()
		g.bad[name] = true
		g.add("bad", name)
	case "put":
		g.add(g.change("put"))
	case "handler":
		g.addHandler()
	case "remove":
		g.add("remove", g.handler())
	case "index":
		g.addIndex()
	case "block":
		g.block()
	}
}

// step draws a line that comes after run.
func (g *generator) step() {
	kinds := []string{
		"put", "put", "put", "drop", "recreate", "burst", "handler", "handler", "remove", "index", "wait",
	}
	if !g.resyncs { // ours skips resyncs of a slow handler, client-go queues them
		kinds = append(kinds, "block", "unblock")
	}
	switch {
	case g.held:
	case g.fails:
		kinds = append(kinds, "bookmark", "bad", "bad")
	default:
		kinds = append(kinds, "bookmark", "close", "expire", "fail", "instream", "faillist", "down", "gap", "gap", "gap", "gap", "slow")
	}
	switch kind := g.pick("command", kinds...); kind {
	case "burst":
		g.add("burst", g.changes())
	case "gap":
		g.add("gap", g.gap())
	case "handler":
		g.addHandler()
	case "remove":
		g.add("remove", g.handler())
	case "index":
		g.addIndex()
	case "block":
		g.block()
	case "unblock":
		g.add("unblock", g.handler())
	case "bad":
		name := g.name()
		g.bad[name] = true
		g.add("bad", name)
	case "fail", "instream", "faillist":
		g.add(kind, g.code())
	case "slow":
		g.held = true
		g.add("gap", "hold; "+g.change("put")+"; "+g.changes()+"; expire")
	case "wait":
		duration := g.pick("duration", "10s", "1m", "11m")
		if g.held { // a streamed list would restart after its timeout
			duration = "1s"
		}
		g.add("wait", duration)
	case "down":
		g.add("down", g.pick("duration", "1s", "30s"))
	case "bookmark", "close", "expire":
		g.add(kind)
	default:
		g.add(g.change(kind))
	}
}

func (g *generator) addHandler() {
	name := g.handler()
	if !g.resyncs { // no handler is resynced, whatever its period
		g.add(strings.TrimSpace("handler " + name + " " + g.pick("period", "", "10s")))
		return
	}
	g.add("handler", name, g.pick("period", "0s", "10s", "20s", "25s"))
}

func (g *generator) block() {
	if g.resyncs {
		return
	}
	g.add("block", g.handler())
}

func (g *generator) addIndex() {
	words := []string{"index"}
	for _, name := range slices.Compact([]string{g.pick("index", "v", "one", "two", "namespace"), g.pick("index", "one", "two")}) {
		words = append(words, name+"="+g.kind())
	}
	g.add(words...)
}

// change draws one change of an object. client-go's informer loses the deletion of an
// object for which the transform fails: see TestDifferenceTransformError.
func (g *generator) change(kind string) string {
	name := g.name()
	if g.bad[name] {
		kind = "put"
		delete(g.bad, name)
	}
	if kind == "drop" {
		return "drop " + name
	}
	return kind + " " + name + " " + g.value()
}

func (g *generator) changes() string {
	var out []string
	for range rapid.IntRange(2, 5).Draw(g.T, "changes") {
		out = append(out, g.change(g.pick("change", "put", "put", "drop", "recreate")))
	}
	return strings.Join(out, "; ")
}

// gap draws the changes while the server is away, and how much history it has lost then.
func (g *generator) gap() string {
	var out []string
	for range rapid.IntRange(1, 5).Draw(g.T, "gap") {
		switch kind := g.pick("part", "put", "put", "drop", "drop", "recreate", "recreate", "handler", "remove", "index"); kind {
		case "handler", "remove":
			out = append(out, kind+" "+g.handler())
		case "index":
			out = append(out, "index two="+g.kind())
		default:
			out = append(out, g.change(kind))
		}
	}
	for range rapid.IntRange(0, 2).Draw(g.T, "failures") {
		out = append(out, g.pick("kind", "fail", "instream", "faillist")+" "+g.code())
	}
	if g.pick("history", "kept", "lost", "lost") == "lost" {
		out = append(out, "expire")
	}
	return strings.Join(out, "; ")
}
