package remap

import "fmt"

// NextLen returns the length of the next chunk of a transfer that has remaining bytes left, the first of them at off in
// the destination. The engine calls it for each frame; adding the result to off and taking it from remaining gives the
// next call's arguments. It is zero only when nothing remains.
//
// maxPayload is the largest payload of a frame, above zero. page is the destination's page size, a power of two; off
// counts from a page boundary there. With page 0, or pages larger than a payload, no chunk can be a whole page and
// every chunk is as long as fits.
//
// Otherwise chunks are, in this order (paper 2.3.2): a leading partial page up to the first page boundary; runs of as
// many whole pages as fit; the tail. With an MTU of 9000 and pages of 4096, runs are 8192 bytes. One refinement of the
// paper: where no whole page lies ahead, nothing is aligned, and chunks are again as long as fits, which saves a frame.
func NextLen(off, remaining uint64, maxPayload, page int) int {
	if maxPayload <= 0 || page < 0 || page&(page-1) != 0 {
		panic(fmt.Sprintf("BUG: remap.NextLen: payload of %d bytes, pages of %d", maxPayload, page))
	}
	fit := min(remaining, uint64(maxPayload))
	p := uint64(page)
	if page == 0 || maxPayload < page {
		return int(fit)
	}
	lead := -off & (p - 1) // to the next page boundary
	if remaining < lead || remaining-lead < p {
		return int(fit) // no whole page ahead: the tail, or all of a short transfer
	}
	if lead != 0 {
		return int(lead)
	}
	return int(fit &^ (p - 1))
}
