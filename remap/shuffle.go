package remap

import "fmt"

// The layout of figure 2.4, for a header of H bytes and a payload P of N bytes:
//
//	sent      | header | P[H:] .......... | P[:H] |
//	received  ^ page boundary             ^ N     ^ H+N
//	restored  | P[:H]  | P[H:] .......... |
//
// After the last H bytes are copied over the header, the payload begins at the page boundary, and only H bytes were copied. A payload
// shorter than the header moves as a whole. H is what the receiver announced.

// SendOrder returns the parts of payload p in the order in which they follow a header of h bytes. They are parts of p itself, either may be
// empty, and a gathered send takes them as they are.
func SendOrder(p []byte, h int) (first, second []byte) {
	if h < 0 {
		panic(fmt.Sprintf("BUG: remap.SendOrder: header of %d bytes", h))
	}
	h = min(h, len(p))
	return p[h:], p[:h]
}

// Unshuffle restores, in place, the payload of n bytes of a frame sent in SendOrder, and returns it: the first n bytes of frame, which
// starts at a page boundary with a header of h bytes. The header is overwritten, so it must have been read; bytes beyond the payload are
// left as they are. Calling it twice for one frame destroys the payload. If the frame is too short to hold header and payload, or a length
// is negative, nothing is changed and the result is nil; an empty payload is not nil.
func Unshuffle(frame []byte, h, n int) (payload []byte) {
	if h < 0 || n < 0 || h > len(frame) || n > len(frame)-h {
		return nil
	}
	moved := min(h, n)
	copy(frame[:moved], frame[h+n-moved:h+n])
	return frame[:n:n]
}
