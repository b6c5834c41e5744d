package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"
)

// live is what top shows on a terminal. Bubbletea calls its methods one at a time: Update for each event, View for what
// is to be seen after it.
type live struct {
	g      *globals
	pause  time.Duration
	before *fullSample // the last look, which the next is compared with
	report *topReport  // nil while note says why there is none
	note   string
	height int
	order  int // of connOrders
	only   focus
}

// run shows one table after the other until it is told to end.
func (m live) run(out *os.File) error {
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	defer stop()
	var in io.Reader // nil if there is no keyboard
	if f, ok := m.g.in.(*os.File); ok && isTerminal(f) {
		in = keyboard{f, stop}
	}
	p := tea.NewProgram(m, tea.WithInput(in), tea.WithOutput(out), tea.WithFilter(sized),
		tea.WithFPS(20),            // fewer than it would: the processor is the daemon's
		tea.WithoutSignalHandler()) // it knows no SIGHUP
	context.AfterFunc(ctx, p.Quit)
	_, err := p.Run()
	return err
}

// keyboard is a terminal that tells when it is gone, which bubbletea takes for nobody typing.
type keyboard struct {
	*os.File
	gone func()
}

func (k keyboard) Read(b []byte) (int, error) {
	n, err := k.File.Read(b)
	if n == 0 || err != nil {
		k.gone()
		return 0, io.EOF
	}
	return n, nil
}

// sized gives a terminal that does not tell its size that of the first ones.
func sized(_ tea.Model, msg tea.Msg) tea.Msg {
	if s, ok := msg.(tea.WindowSizeMsg); ok && (s.Width < 1 || s.Height < 1) {
		return tea.WindowSizeMsg{Width: 80, Height: 24}
	}
	return msg
}

// look is what one look at the daemon found.
type look struct {
	*fullSample
	err error
}

// look looks at the daemon after a pause, beside everything else: keys need not wait for its answer.
func (m live) look() tea.Msg {
	m.g.pause(m.pause)
	s, err := m.g.fullSample()
	return look{s, err}
}

func (m live) Init() tea.Cmd { return m.look }

func (m live) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.height = msg.Height
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "Q", "ctrl+c", "ctrl+d":
			return m, tea.Quit
		case "s":
			m.order = m.nextOrder()
		case "tab":
			m.only = m.only.next()
		}
	case look:
		m.take(msg)
		return m, m.look
	}
	return m, nil
}

// take takes in what a look found. A daemon that goes is waited for.
func (m *live) take(l look) {
	m.report = nil
	switch {
	case l.err != nil:
		m.note = gone(l.err).Error() + "\n\nwaiting for it; q ends"
		return
	case l.restartedSince(&m.before.sample):
		m.note = "the daemon was restarted: its counters begin anew"
	default:
		m.report = rank(l.fullSample, m.before)
	}
	m.before = l.fullSample
}

// View is a line for each of the terminal's, the keys in the last. What is wider than the terminal is cut by bubbletea.
func (m live) View() tea.View {
	room := max(m.height-1, 0)
	text := m.note
	if m.report != nil {
		text = m.report.text(room, m.only, m.order)
	}
	lines := append(strings.Split(text, "\n"), make([]string, room)...)[:room]
	lines = append(lines, fmt.Sprintf("q: end   tab: %s   s: connections by %s", m.only.next(),
		connOrders[m.nextOrder()].column))
	v := tea.NewView(clean(strings.Join(lines, "\n")))
	v.AltScreen = true
	return v
}

func (m live) nextOrder() int { return (m.order + 1) % len(connOrders) }

// clean leaves nothing in a text that steers a terminal but the ends of lines: names come from elsewhere.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}
