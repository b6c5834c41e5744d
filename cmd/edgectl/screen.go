package main

import (
	"io"
	"os"
	"strings"
	"unicode"

	"golang.org/x/term"
)

// What terminals understand, all of them since the VT100 and xterm.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // another screen, without cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	toTop       = "\x1b[H"
	clearLine   = "\x1b[K"
	clearRest   = "\x1b[J"
)

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// screen is a terminal taken over for a while. What was on it comes back at close.
type screen struct {
	out  *os.File
	in   *os.File // nil if there is no keyboard
	was  *term.State
	keys chan byte // closed when the keyboard is gone; nil if there is none
}

// openScreen takes the terminal over.
func openScreen(in io.Reader, out *os.File) (*screen, error) {
	s := &screen{out: out}
	if isTerminal(in) {
		s.in, s.keys = in.(*os.File), make(chan byte)
		was, err := term.MakeRaw(int(s.in.Fd()))
		if err != nil {
			return nil, err
		}
		s.was = was
		go s.read()
	}
	_, err := io.WriteString(out, enterScreen)
	if err != nil {
		s.close()
	}
	return s, err
}

// read passes keys on, until there are none any more. It is left behind in its last read when the program ends.
func (s *screen) read() {
	defer close(s.keys)
	var key [1]byte
	for {
		if n, err := s.in.Read(key[:]); n == 0 || err != nil {
			return
		}
		s.keys <- key[0]
	}
}

func (s *screen) close() {
	io.WriteString(s.out, leaveScreen)
	if s.was != nil {
		term.Restore(int(s.in.Fd()), s.was)
	}
}

// size is that of the terminal; where it does not tell, that of the first ones.
func (s *screen) size() (width, height int) {
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width < 1 || height < 1 {
		return 80, 24
	}
	return width, height
}

// draw replaces what is on the screen, as much of it as there is room for.
func (s *screen) draw(text string) error {
	width, height := s.size()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	lines = lines[:min(len(lines), height)]
	for i := range lines {
		lines[i] = clip(lines[i], width) + clearLine
	}
	_, err := io.WriteString(s.out, toTop+strings.Join(lines, "\r\n")+clearRest)
	return err
}

// clip cuts a line to a width. Names come from elsewhere: nothing in them may steer the terminal.
func clip(line string, width int) string {
	var b strings.Builder
	n := 0
	for _, r := range line {
		if n == width {
			break
		}
		if !unicode.IsPrint(r) {
			r = '?'
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}
