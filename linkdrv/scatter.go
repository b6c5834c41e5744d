package linkdrv

import "multiedge/internal/frame"

// Receiving with scattered recvmmsg:
//
//  1. the caller forecasts where the payloads of the next frames belong (engine.Forecast) and passes these slots;
//  2. message i gets three vectors: Split bytes of the driver's buffer i, slot i, the rest of buffer i;
//  3. one recvmmsg copies up to 32 frames, each payload straight to its slot;
//  4. a frame whose payload does not belong in its slot is joined: its pieces are put together in buffer i.
//
// Join must run for every frame of the batch that needs it before any slot is written to.
//
// With Options.Pages nothing is scattered: a slot takes the frame from its Ethernet header on, as a NIC would fill the
// pages of a descriptor, and what is longer than the slot follows in buffer i. Slots are whole pages, and the sender
// has put the payload bytes that the headers displace behind the others, so that they are what follows
// (remap.Unshuffle).

// Split is the number of bytes of a frame that precede a bulk payload: Ethernet, fixed and bulk header.
const Split = 78

// Scatterer is a Driver that can receive payloads where they belong. RecvScatter is for the goroutine that calls Recv.
type Scatterer interface {
	Driver
	// RecvScatter is Recv of up to min(len(dst), len(slots)) frames, the bytes of the i-th after Split (with Pages all
	// its bytes) going to slots[i] as far as that reaches. Slots must not overlap. What of them was written, the frames
	// say; the rest of dst's pieces are the driver's until the next call.
	RecvScatter(dst []RxFrame, slots [][]byte) (n int, err error)
}

// RxFrame is a frame received in pieces. With Options.Pages its Head is all that landed in the slot.
type RxFrame = frame.Rx

// RecvScatter implements Scatterer.
func (d *mmsg) RecvScatter(dst []RxFrame, slots [][]byte) (n int, err error) {
	want := min(len(dst), len(slots), RecvBatch)
	if want == 0 {
		return 0, nil
	}
	for i, slot := range slots[:want] {
		d.aim(i, slot)
	}
	k, err := d.recv(want)
	for i := range want {
		d.home(i)
	}
	for i := range k {
		if !d.whole(i) {
			continue
		}
		size, buf, slot := int(d.hdrs[i].Len), d.bufs[i], slots[i]
		if d.info.Pages {
			head := min(size, lands(slot, buf))
			dst[n] = RxFrame{Head: slot[:head], Rest: buf[head:size], Buf: buf}
			n++
			continue
		}
		head := min(size, Split)
		body := min(size-head, len(slot))
		dst[n] = RxFrame{Head: buf[:head], Body: slot[:body], Rest: buf[head:][:size-head-body], Buf: buf}
		n++
	}
	return n, err
}

// lands is how many bytes of a frame a slot takes before the rest of it goes to buf. At least one byte of buf is left.
func lands(slot, buf []byte) int { return min(len(slot), len(buf)-1) }

// aim points message i at its slot and, for what the slot is not to take, at its own buffer.
func (d *mmsg) aim(i int, slot []byte) {
	v, buf := d.iovs[vectors*i:], d.bufs[i]
	if d.info.Pages {
		n := lands(slot, buf)
		v[0].Base = &slot[0]
		v[0].SetLen(n)
		v[1].Base = &buf[n]
		v[1].SetLen(len(buf) - n)
		d.hdrs[i].Hdr.SetIovlen(2)
		return
	}
	v[0].SetLen(Split)
	v[1].Base = &slot[0]
	v[1].SetLen(len(slot))
	v[2].Base = &buf[Split]
	v[2].SetLen(len(buf) - Split)
	d.hdrs[i].Hdr.SetIovlen(vectors)
}
