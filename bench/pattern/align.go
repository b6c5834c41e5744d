package pattern

import "fmt"

// Alignments are the places of a destination in its first page that the paper compares (3.3.5, figure 3.11): at its
// start, in its middle, and at its second byte.
var Alignments = []string{"best", "middle", "worst"}

var intoPage = map[string]int{"best": 0, "middle": 2048, "worst": 1}

// Slots of an aligned layout begin at multiples of a page, or for long messages of what transports exchange pages by.
const (
	page = 4096
	run  = 64 << 10
)

// PairAt is Pair with sources that begin on pages and destinations aligned as named, the whole multiple of a page being
// one of 64 KiB for messages of that size and more. An empty name means Pair.
func PairAt(size, message int, checked bool, align string) (src, dst Layout, err error) {
	if align == "" {
		return Pair(size, message, checked)
	}
	into, ok := intoPage[align]
	if !ok {
		return src, dst, fmt.Errorf("alignment %q: want one of %v", align, Alignments)
	}
	unit := page
	if message >= run {
		unit = run
	}
	if src, err = aligned(size, message, checked, unit, 0); err == nil {
		dst, err = aligned(size, message, checked, unit, into)
	}
	if err != nil {
		return src, dst, err
	}
	src.Slots = min(src.Slots, dst.Slots)
	if dst.Slots = src.Slots; checked {
		if dst.Slots--; dst.Slots < 1 {
			return src, dst, fmt.Errorf("checking messages of %d bytes needs room for two in a region of %d", message,
				size)
		}
	}
	return src, dst, nil
}

// aligned divides a region into slots that begin into bytes behind a multiple of unit.
func aligned(size, message int, checked bool, unit, into int) (Layout, error) {
	l := Layout{Message: message, Checked: checked}
	l.Stride = (strideFor(message, checked) + unit - 1) / unit * unit
	first := (Guard + gap + unit - 1) / unit * unit
	l.Shift = first + into - Guard - gap
	if l.Slots = (size - Guard - l.Off(0)) / l.Stride; l.Slots < 1 {
		return l, fmt.Errorf("an aligned message of %d bytes does not fit a region of %d bytes", message, size)
	}
	return l, nil
}
