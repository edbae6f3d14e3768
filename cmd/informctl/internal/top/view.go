package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/informctl/informctl/cmd/informctl/internal/health"
)

// Each meaning of a colour is also expressed in words.
var (
	plain    = lipgloss.NewStyle()
	strong   = plain.Bold(true)
	selected = plain.Reverse(true)
	weak     = plain.Faint(true)
	good     = plain.Foreground(lipgloss.Green)
	busy     = plain.Foreground(lipgloss.Yellow)
	bad      = plain.Foreground(lipgloss.Red)
)

// The numbers of screen lines that are not rows of the table, and not lines of a page.
const (
	aroundTable = 6
	aroundPage  = 3
)

func (m *model) tableHeight() int { return m.height - aroundTable }
func (m *model) pageHeight() int  { return m.height - aroundPage }

// View implements tea.Model.
func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	return v
}

// lines returns the lines of the screen, none longer than the screen is wide.
func (m *model) lines() []string {
	var lines []string
	footer := m.fitted("q quit", "? help", "s sort", "/ filter", "enter details", "space pause", "r reverse")
	if m.page == pageTable {
		lines = append(lines, m.title(), m.summary(), m.notice(), m.header())
		lines = append(lines, m.table()...)
		lines = append(lines, m.problem())
	} else {
		lines = append(lines, m.title(), m.notice())
		all := m.pageLines()
		end := min(len(all), m.scroll+max(0, m.pageHeight()))
		lines = append(lines, all[m.scroll:end]...)
		footer = m.fitted("q quit", "esc back", "j k scroll", fmt.Sprintf("lines %d to %d of %d", m.scroll+1, end, len(all)))
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	if m.typing {
		footer = "/" + m.filter + selected.Render(" ")
	}
	lines = append(lines[:max(0, m.height-1)], footer)
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, m.width, "…")
	}
	return lines
}

// fitted joins as many parts as fit into one line.
func (m *model) fitted(parts ...string) string {
	line := ""
	for _, part := range parts {
		if line != "" {
			part = "   " + part
		}
		if ansi.StringWidth(line+part) > m.width {
			break
		}
		line += part
	}
	return line
}

const clock = "15:04:05"

func (m *model) title() string {
	const name = "informctl top"
	room := max(1, m.width-len(name)-len(clock)-4)
	file := middle(clean(m.o.File), room)
	gap := strings.Repeat(" ", max(0, room-ansi.StringWidth(file)))
	return strong.Render(name) + "  " + file + gap + "  " + m.tried.Format(clock)
}

// summary returns a line about all scopes. It ignores the filter.
func (m *model) summary() string {
	var (
		wrong, objects, waiting int
		pending, file, memory   int64
		rate                    float64
	)
	files := map[string]bool{}
	for _, r := range m.rows {
		objects, rate, waiting = objects+r.Objects, rate+r.rate(), waiting+health.Waiting(r.Status)
		pending, memory = pending+max(0, pendingBytes(r)), max(memory, r.ProcessBytes)
		if r.wrong != "" {
			wrong++
		}
		if !files[r.File] {
			files[r.File] = true
			file += r.FileBytes
		}
	}
	well := "all well"
	if wrong > 0 {
		well = fmt.Sprintf("%d not well", wrong)
	}
	parts := []string{counted(len(m.rows), "scope") + ", " + well, fmt.Sprintf("%.0f events/s", rate)}
	if memory > 0 {
		parts = append(parts, "memory "+health.Size(memory))
	}
	return m.fitted(append(parts, "file "+health.Size(file), counted(objects, "object"),
		"pending "+health.Size(pending), fmt.Sprintf("%d waiting for handlers", waiting))...)
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// notice returns the reasons why the screen does not show all scopes in their present
// state.
func (m *model) notice() string {
	var parts []string
	if m.filter != "" {
		parts = append(parts, busy.Render(fmt.Sprintf("filter %s: %d of %d", m.filter, len(m.shown()), len(m.rows))))
	}
	if m.paused {
		parts = append(parts, busy.Render("paused at "+m.at.Format(clock)))
	}
	if m.lost != nil {
		parts = append(parts, bad.Render(fmt.Sprintf("no answer since %s (%s): %s", m.lostSince.Format(clock),
			health.Ago(m.lostSince, m.tried), clean(m.lost.Error()))))
	}
	return strings.Join(parts, "   ")
}

// problem returns what is wrong with the selected scope, or otherwise with the first
// scope that has a problem.
func (m *model) problem() string {
	rows := m.shown()
	if len(rows) > 0 {
		rows = append([]row{rows[m.selection(rows)]}, rows...)
	}
	for _, r := range rows {
		if r.wrong != "" {
			return bad.Render("! " + r.name + ": " + r.wrong)
		}
	}
	return ""
}

// placed is a column on a screen.
type placed struct{ index, width int }

// gap is the space between columns. Two marks precede the first column.
const gap = 2

// nameRoom returns the width that the names get, if they need it, before a column of the
// priority is shown.
func nameRoom(priority int) int {
	switch {
	case priority >= 5:
		return 28
	case priority >= 3:
		return 20
	}
	return columns[0].width
}

// priority returns the priority of a column. The last one, WRONG, gives way to all others
// while nothing is wrong.
func (m *model) priority(index int) int {
	isWrong := func(r row) bool { return r.wrong != "" }
	if index == len(columns)-1 && !slices.ContainsFunc(m.rows, isWrong) {
		return len(columns)
	}
	return columns[index].priority
}

// layout returns the columns that fit on the screen, with their widths.
func (m *model) layout() []placed {
	order := make([]int, len(columns))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return m.priority(a) - m.priority(b) })
	longest := 0
	for _, r := range m.rows {
		longest = max(longest, ansi.StringWidth(r.name))
	}
	room := m.width
	var shown []placed
	for _, i := range order {
		reserved := max(0, min(longest, nameRoom(m.priority(i)))-columns[0].width)
		if room < gap+columns[i].width+reserved {
			break
		}
		room -= gap + columns[i].width
		shown = append(shown, placed{i, columns[i].width})
	}
	slices.SortFunc(shown, func(a, b placed) int { return a.index - b.index })
	if len(shown) == 0 {
		return []placed{{0, max(1, m.width-gap)}}
	}
	more := min(room, max(0, longest-shown[0].width))
	shown[0].width += more
	if last := &shown[len(shown)-1]; last.index == len(columns)-1 {
		last.width += room - more
	}
	return shown
}

func (m *model) header() string {
	line := ""
	for _, c := range m.layout() {
		title := columns[c.index].title
		if c.index == m.sorted {
			title += m.arrow()
		}
		line += strings.Repeat(" ", gap) + cell(title, c)
	}
	return strong.Render(line)
}

// arrow returns the direction in which the sorted column is ordered.
func (m *model) arrow() string {
	if columns[m.sorted].falls != m.reversed {
		return "▼"
	}
	return "▲"
}

// cell truncates a text to a column and aligns it.
func cell(text string, c placed) string {
	text = ansi.Truncate(text, c.width, "…")
	fill := strings.Repeat(" ", c.width-ansi.StringWidth(text))
	if columns[c.index].right {
		return fill + text
	}
	return text + fill
}

func (m *model) table() []string {
	rows, shown := m.shown(), m.layout()
	at := m.selection(rows)
	var lines []string
	for i := m.first; i < len(rows) && len(lines) < m.tableHeight(); i++ {
		lines = append(lines, m.line(rows[i], shown, i == at))
	}
	switch {
	case len(rows) > 0 || m.tableHeight() <= 0:
	case len(m.rows) > 0:
		lines = append(lines, "  no scope has a name with "+m.filter)
	default:
		lines = append(lines, "  the process has no informer")
	}
	return lines
}

func (m *model) line(r row, shown []placed, isSelected bool) string {
	marks := []byte("  ")
	if isSelected {
		marks[0] = '>'
	}
	if r.wrong != "" {
		marks[1] = '!'
	}
	b := strings.Builder{}
	for i, c := range shown {
		before := strings.Repeat(" ", gap)
		if i == 0 {
			before = string(marks)
		}
		text := cell(columns[c.index].text(r, m.at, c.width), c)
		if columns[c.index].title == "STATE" && !isSelected && m.lost == nil {
			text = r.style().Render(text)
		}
		b.WriteString(before + text)
	}
	switch {
	case isSelected:
		return selected.Render(b.String())
	case m.lost != nil:
		return weak.Render(b.String())
	}
	return b.String()
}

func (r row) style() lipgloss.Style {
	switch {
	case r.wrong == "":
		return good
	case r.Listing != "":
		return busy
	}
	return bad
}

// since returns how long ago t was, for a separate line.
func since(t, now time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return health.Ago(t, now) + " ago"
}
