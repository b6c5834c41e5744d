package remap

import "fmt"

// The layout of figure 2.4, for a header of H bytes and a payload P of N bytes, which is whole pages:
//
//	sent      | header | P[H:] .......... | P[:H] | tail |
//	received  ^ page   | P[H:] .......... ^ N     ^ N+H  in the pages, and the rest in another buffer
//	restored  | P[:H]  | P[H:] .......... |
//
// After the last H bytes are copied over the header, the payload begins at the page boundary, and only H bytes were
// copied. A payload shorter than the header moves as a whole. H is what the receiver announced.

// SendOrder returns the parts of payload p in the order in which they follow a header of h bytes. They are parts of p
// itself, either may be empty, and a gathered send takes them as they are.
func SendOrder(p []byte, h int) (first, second []byte) {
	if h < 0 {
		panic(fmt.Sprintf("BUG: remap.SendOrder: header of %d bytes", h))
	}
	h = min(h, len(p))
	return p[h:], p[:h]
}

// Unshuffle restores the payload of a frame sent in SendOrder behind a header of h bytes: pages, which are as long as
// the payload, hold the frame's beginning, and rest what follows it. The header is overwritten, so it must have been
// read. If pages or rest are shorter than the header, nothing is changed and the result is false.
func Unshuffle(pages, rest []byte, h int) bool {
	if h < 0 || h > len(pages) || h > len(rest) {
		return false
	}
	copy(pages[:h], rest)
	return true
}
