package report

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Progress shows where a long run is, on one line that rewrites itself. On anything but a terminal it is silent, or, if
// made by NewSteps, has a line for each step. Its methods may be called from any goroutine; the nil Progress does
// nothing.
type Progress struct {
	// Limit is how long all of it takes at most, if that is known; set it before the first Update.
	Limit time.Duration

	mu    sync.Mutex
	w     io.Writer
	total int
	done  int
	start time.Time
	shown bool
	lines bool // a line for each step
	last  int  // the step of the last line; from 1
}

// NewProgress shows the progress of total steps on f if f is a terminal, else it returns nil.
func NewProgress(f *os.File, total int) *Progress {
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return newProgress(f, total)
}

// NewSteps shows the progress of total steps on f: as NewProgress does or, if f is no terminal, by a line for each
// step.
func NewSteps(f *os.File, total int) *Progress {
	if p := NewProgress(f, total); p != nil {
		return p
	}
	p := newProgress(f, total)
	p.lines = true
	return p
}

func newProgress(w io.Writer, total int) *Progress {
	return &Progress{w: w, total: total, start: time.Now()}
}

// Update shows what is being done now and how far (0 to 1) the current step is.
func (p *Progress) Update(what string, part float64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	const width = 24
	share := 0.0
	if p.total > 0 {
		share = min(1, (float64(p.done)+min(max(part, 0), 1))/float64(p.total))
	}
	fill := int(share * width)
	step := min(p.done+1, p.total)
	if p.lines {
		if step != p.last {
			fmt.Fprintf(p.w, "test %d of %d: %s%s\n", step, p.total, what, p.left(share))
		}
		p.last = step
		return
	}
	fmt.Fprintf(p.w, "\r\x1b[K[%s%s] test %d of %d: %s%s", strings.Repeat("#", fill), strings.Repeat(".", width-fill),
		step, p.total, what, p.left(share))
	p.shown = true
}

// left says how much time is left after a share of the work, as far as that can be told.
func (p *Progress) left(share float64) string {
	used := time.Since(p.start)
	known := share > 0.02 && share < 1 && used > 2*time.Second
	left := max(0, p.Limit-used)
	if known {
		if rest := time.Duration(float64(used)/share) - used; p.Limit == 0 || rest < left {
			left = rest
		}
	}
	switch {
	case known:
		return fmt.Sprintf("; %s left", left.Round(time.Second))
	case p.Limit > 0:
		return fmt.Sprintf("; at most %s left", left.Round(time.Second))
	}
	return ""
}

// SetTotal changes how many steps there are.
func (p *Progress) SetTotal(total int) { p.change(func() { p.total = total }) }

// Step ends the current step.
func (p *Progress) Step() { p.change(func() { p.done++ }) }

// Clear takes the line away, so that something else can be printed.
func (p *Progress) Clear() {
	p.change(func() {
		if p.shown {
			fmt.Fprint(p.w, "\r\x1b[K")
			p.shown = false
		}
	})
}

func (p *Progress) change(do func()) {
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		do()
	}
}
