package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/informctl/informctl/cmd/informctl/internal/health"
	"github.com/informctl/informctl/informer"
)

// row is the row of one scope.
type row struct {
	key, name    string
	state, wrong string
	rates        []float64 // events per second, the newest last
	informer.Status
}

func (r row) rate() float64 {
	if len(r.rates) == 0 {
		return 0
	}
	return r.rates[len(r.rates)-1]
}

// history is the data about a scope from earlier answers.
type history struct {
	events int
	at     time.Time // the time of the last status
	rates  []float64
}

// remembered is the number of rates that are kept for drawing.
const remembered = 60

// remember adds an answer to the histories and removes those of scopes that no longer
// exist.
func (m *model) remember(a answer) {
	keys := keysOf(a.statuses)
	next := make(map[string]*history, len(keys))
	for i, s := range a.statuses {
		h := m.histories[keys[i]]
		// Another process or informer, or a clock that was set back.
		if h == nil || s.Events < h.events || s.Time.Before(h.at) {
			h = &history{events: s.Events, at: s.Time}
		}
		// A status with the time of the previous one contains nothing new.
		if passed := s.Time.Sub(h.at).Seconds(); passed > 0 {
			h.rates = append(h.rates, float64(s.Events-h.events)/passed)
			h.rates = h.rates[max(0, len(h.rates)-remembered):]
			h.events, h.at = s.Events, s.Time
		}
		next[keys[i]] = h
	}
	m.histories = next
}

// keysOf returns a unique key for each row of an answer. The scope's ID is not enough:
// two informers may hold one scope, one of them in memory, and informers that do not run
// yet have no ID.
func keysOf(statuses []informer.Status) []string {
	keys, seen := make([]string, len(statuses)), map[string]int{}
	for i, s := range statuses {
		seen[s.Scope.ID]++
		keys[i] = fmt.Sprintf("%s %d", s.Scope.ID, seen[s.Scope.ID])
	}
	return keys
}

// short shortens a state for a narrow column.
var short = strings.NewReplacer("synced, not", "not", ", ", " ")

func (m *model) rowsOf(a answer) []row {
	keys, names := keysOf(a.statuses), map[string]int{}
	rows := make([]row, len(a.statuses))
	for i, s := range a.statuses {
		rows[i] = row{
			key: keys[i], name: nameOf(s.Scope), Status: s,
			state: short.Replace(health.State(s)), wrong: clean(health.Wrong(s, a.at)),
		}
		if h := m.histories[keys[i]]; h != nil {
			rows[i].rates = slices.Clone(h.rates)
		}
		names[rows[i].name]++
	}
	for i := range rows {
		if form := rows[i].Scope.Form; names[rows[i].name] > 1 && form != "" {
			rows[i].name += " (" + form + ")"
		}
	}
	return rows
}

// nameOf returns the scope as the user would write it in arguments of run.
func nameOf(s informer.ScopeStatus) string {
	name := cmp.Or(s.Resource, "(not started)")
	for _, part := range []struct{ flag, value string }{
		{"-n", s.Namespace}, {"-l", s.LabelSelector}, {"--field-selector", s.FieldSelector},
	} {
		if part.value != "" {
			name += " " + part.flag + " " + part.value
		}
	}
	return clean(name)
}

// clean replaces control characters in a text, which the terminal would obey.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}

// shown returns the rows that pass the filter, in order.
func (m *model) shown() []row {
	var rows []row
	for _, r := range m.rows {
		if strings.Contains(strings.ToLower(r.name), strings.ToLower(m.filter)) {
			rows = append(rows, r)
		}
	}
	c := columns[m.sorted]
	slices.SortStableFunc(rows, func(a, b row) int {
		order := c.compare(a, b)
		if c.falls != m.reversed {
			order = -order
		}
		return cmp.Or(order, cmp.Compare(a.name, b.name), cmp.Compare(a.key, b.key))
	})
	return rows
}

// sortBy selects the next or the previous shown column as the sort column.
func (m *model) sortBy(step int) {
	shown := m.layout()
	at := slices.IndexFunc(shown, func(c placed) bool { return c.index == m.sorted })
	for range shown {
		at = (at + step + len(shown)) % len(shown)
		if columns[shown[at].index].compare != nil {
			m.sorted, m.reversed = shown[at].index, false
			return
		}
	}
}
