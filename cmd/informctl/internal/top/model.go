package top

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/informctl/informctl/informer"
)

// model is the state of the screen. It is not safe for concurrent use.
type model struct {
	ctx context.Context // of the queries
	o   Options

	width, height int

	rows      []row     // of the status that is shown
	at        time.Time // when that status was taken
	latest    answer    // shown unless the screen is paused
	paused    bool
	histories map[string]*history // by row.key; updated also while paused
	lost      error               // why the last query failed; nil if it succeeded
	lostSince time.Time
	tried     time.Time // when the process was last queried

	sorted   int // index into columns
	reversed bool
	filter   string
	typing   bool // the user is typing the filter

	selected string // row.key
	first    int    // the first row on the screen
	page     page
	scroll   int // the first line of the page on the screen
}

// page is a page that is shown instead of the table.
type page int

const (
	pageTable page = iota
	pageDetails
	pageHelp
)

// answer is the answer of the process, or the error of a query.
type answer struct {
	at       time.Time
	statuses []informer.Status
	err      error
}

// due is the message that triggers the next query.
type due struct{}

func newModel(ctx context.Context, o Options) *model {
	return &model{ctx: ctx, o: o, histories: map[string]*history{}}
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return m.wait() }

func (m *model) wait() tea.Cmd {
	return tea.Tick(m.o.Interval, func(time.Time) tea.Msg { return due{} })
}

func (m *model) ask() tea.Msg {
	statuses, err := m.o.Ask(m.ctx)
	return answer{m.o.Now(), statuses, err}
}

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case due:
		return m, m.ask
	case answer:
		m.answered(msg)
		cmd = m.wait()
	case tea.PasteMsg:
		if m.typing {
			m.filter += clean(msg.Content)
		}
	case tea.KeyPressMsg:
		cmd = m.key(msg)
	}
	m.keepInView()
	return m, cmd
}

// answered processes an answer. If the query failed, the previous status stays on the
// screen.
func (m *model) answered(a answer) {
	m.tried = a.at
	if a.err != nil {
		if m.lost == nil {
			m.lostSince = a.at
		}
		m.lost = a.err
		return
	}
	m.lost, m.latest = nil, a
	m.remember(a)
	if !m.paused {
		m.show(a)
	}
}

func (m *model) show(a answer) { m.rows, m.at = m.rowsOf(a), a.at }

func (m *model) key(msg tea.KeyPressMsg) tea.Cmd {
	key := msg.String()
	switch {
	case key == "ctrl+c":
		return tea.Quit
	case key == "ctrl+z":
		return tea.Suspend
	case m.typing:
		m.typed(key, msg.Text)
	case key == "q":
		return tea.Quit
	case m.page != pageTable:
		m.pageKey(key)
	case key == "esc" && m.filter == "":
		return tea.Quit
	default:
		m.tableKey(key)
	}
	return nil
}

// typed changes the filter.
func (m *model) typed(key, text string) {
	switch key {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	case "backspace":
		if letters := []rune(m.filter); len(letters) > 0 {
			m.filter = string(letters[:len(letters)-1])
		}
	case "ctrl+u":
		m.filter = ""
	default:
		m.filter += text
	}
}

func (m *model) tableKey(key string) {
	switch key {
	case "esc":
		m.filter = ""
	case "s", ">":
		m.sortBy(+1)
	case "<":
		m.sortBy(-1)
	case "r":
		m.reversed = !m.reversed
	case "space", "p":
		if m.paused = !m.paused; !m.paused {
			m.show(m.latest)
		}
	case "/":
		m.typing = true
	case "?", "h":
		m.page, m.scroll = pageHelp, 0
	case "enter":
		if rows := m.shown(); len(rows) > 0 {
			// The page stays with this row if the order changes.
			m.selected = rows[m.selection(rows)].key
			m.page, m.scroll = pageDetails, 0
		}
	default:
		m.move(m.steps(key, m.tableHeight()))
	}
}

func (m *model) pageKey(key string) {
	switch key {
	case "esc", "enter":
		m.page = pageTable
	case "?":
		if m.page == pageHelp {
			m.page = pageTable
		}
	default:
		m.scroll += m.steps(key, m.pageHeight())
	}
}

// far is more than the number of lines of any page. Adding it does not overflow.
const far = 1 << 20

// steps returns the distance that a key moves by on a screen with that many lines.
func (m *model) steps(key string, lines int) int {
	switch key {
	case "j", "down":
		return 1
	case "k", "up":
		return -1
	case "pgdown", "ctrl+f":
		return max(1, lines)
	case "pgup", "ctrl+b":
		return -max(1, lines)
	case "end", "G":
		return far
	case "home", "g":
		return -far
	}
	return 0
}

// move moves the selection.
func (m *model) move(steps int) {
	rows := m.shown()
	if len(rows) == 0 || steps == 0 {
		return
	}
	m.selected = rows[min(max(m.selection(rows)+steps, 0), len(rows)-1)].key
}

// selection returns the index of the selected row among the shown rows, 0 if it is not
// shown.
func (m *model) selection(rows []row) int {
	for i, r := range rows {
		if r.key == m.selected {
			return i
		}
	}
	return 0
}

// keepInView scrolls so that the selected row is on the screen and no page is scrolled
// beyond its end.
func (m *model) keepInView() {
	rows := m.shown()
	at, height := m.selection(rows), max(1, m.tableHeight())
	if m.page == pageDetails && (len(rows) == 0 || rows[at].key != m.selected) {
		m.page = pageTable // the scope no longer exists
	}
	m.first = min(max(m.first, at-height+1), at)
	m.first = max(0, min(m.first, len(rows)-height))
	m.scroll = max(0, min(m.scroll, len(m.pageLines())-max(0, m.pageHeight())))
}
