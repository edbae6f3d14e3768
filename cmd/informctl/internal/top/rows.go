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

// row is one scope of the picture.
type row struct {
	key, name    string
	state, wrong string
	rates        []float64 // events a second, the newest last; none where there is only one answer
	informer.Status
}

func (r row) rate() float64 {
	if len(r.rates) == 0 {
		return 0
	}
	return r.rates[len(r.rates)-1]
}

// history is what earlier answers said of a scope.
type history struct {
	events int
	at     time.Time // when the informer was looked at
	rates  []float64
}

// remembered is how many rates are kept, and may be drawn.
const remembered = 60

// remember adds to the histories, and forgets those of scopes that are gone.
func (m *model) remember(a answer) {
	keys := keysOf(a.statuses)
	next := make(map[string]*history, len(keys))
	for i, s := range a.statuses {
		h := m.histories[keys[i]]
		if h == nil || s.Events < h.events { // another process, or another informer
			h = &history{events: s.Events, at: s.Time}
		}
		// A status that is as old as the last one says nothing of the time since.
		if passed := s.Time.Sub(h.at).Seconds(); passed > 0 {
			h.rates = append(h.rates, float64(s.Events-h.events)/passed)
			h.rates = h.rates[max(0, len(h.rates)-remembered):]
			h.events, h.at = s.Events, s.Time
		}
		next[keys[i]] = h
	}
	m.histories = next
}

// keysOf tells the rows of an answer apart: two informers may hold one scope, one of
// them in memory, and those that do not run yet have none.
func keysOf(statuses []informer.Status) []string {
	keys, seen := make([]string, len(statuses)), map[string]int{}
	for i, s := range statuses {
		seen[s.Scope.ID]++
		keys[i] = fmt.Sprintf("%s %d", s.Scope.ID, seen[s.Scope.ID])
	}
	return keys
}

// short makes a state fit a narrow column.
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

// nameOf is a scope as one gives it to run.
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

// clean is text of others without what a terminal would obey.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}

// shown are the rows that the filter lets through, in order.
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

// sortBy sorts by the next column of those shown, or by the one before.
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
