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

// Progress shows where a long run is, on one line that rewrites itself. On anything but a terminal it is silent. Its
// methods may be called from any goroutine; the nil Progress does nothing.
type Progress struct {
	mu    sync.Mutex
	w     io.Writer
	total int
	done  int
	start time.Time
	shown bool
}

// NewProgress shows the progress of total steps on f if f is a terminal, else it returns nil.
func NewProgress(f *os.File, total int) *Progress {
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return newProgress(f, total)
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
	eta := ""
	if used := time.Since(p.start); share > 0.02 && share < 1 && used > 2*time.Second {
		eta = fmt.Sprintf("  %s left", (time.Duration(float64(used)/share) - used).Round(time.Second))
	}
	fmt.Fprintf(p.w, "\r\x1b[K[%s%s] %d/%d  %s%s", strings.Repeat("#", fill), strings.Repeat(".", width-fill),
		min(p.done+1, p.total), p.total, what, eta)
	p.shown = true
}

// Step ends the current step.
func (p *Progress) Step() {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.done++
	p.mu.Unlock()
}

// Clear takes the line away, so that something else can be printed.
func (p *Progress) Clear() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}
