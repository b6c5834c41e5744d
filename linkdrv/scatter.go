package linkdrv

// Receiving with scattered recvmmsg:
//
//  1. the caller forecasts where the payloads of the next frames belong (engine.Forecast) and passes these slots;
//  2. message i gets three vectors: Split bytes of the driver's buffer i, slot i, the rest of buffer i;
//  3. one recvmmsg copies up to 32 frames, each payload straight to its slot;
//  4. a frame whose payload does not belong in its slot is joined: its pieces are put together in buffer i.
//
// Join must run for every frame of the batch that needs it before any slot is written to.

// Split is the number of bytes of a frame that precede a bulk payload: Ethernet, fixed and bulk header.
const Split = 78

// Scatterer is a Driver that can receive payloads where they belong. RecvScatter is for the goroutine that calls Recv.
type Scatterer interface {
	Driver
	// RecvScatter is Recv of up to min(len(dst), len(slots)) frames, the bytes of the i-th after Split going to slots[i] as far as that
	// reaches. Slots must not overlap. What of them was written, the frames say; the rest of dst's pieces are the driver's until the next call.
	RecvScatter(dst []RxFrame, slots [][]byte) (n int, err error)
}

// RxFrame is a frame received in pieces: Head is its first Split bytes (fewer if it is shorter), Body what landed in the slot, Rest what
// did not fit there.
type RxFrame struct {
	Head, Body, Rest []byte
	buf              []byte
}

// Join puts the pieces together in the driver's buffer and returns the contiguous frame.
func (f *RxFrame) Join() []byte {
	at := len(f.Head)
	copy(f.buf[at+len(f.Body):], f.Rest)
	copy(f.buf[at:], f.Body)
	return f.buf[:at+len(f.Body)+len(f.Rest)]
}

// RecvScatter implements Scatterer.
func (d *mmsg) RecvScatter(dst []RxFrame, slots [][]byte) (n int, err error) {
	want := min(len(dst), len(slots), RecvBatch)
	if want == 0 {
		return 0, nil
	}
	for i, slot := range slots[:want] {
		v := d.iovs[vectors*i:]
		v[0].SetLen(Split)
		v[1].Base = &slot[0]
		v[1].SetLen(len(slot))
		v[2].Base = &d.bufs[i][Split]
		v[2].SetLen(len(d.bufs[i]) - Split)
		d.hdrs[i].Hdr.SetIovlen(vectors)
	}
	k, err := d.recv(want)
	for i := range want {
		v := d.iovs[vectors*i:]
		v[0].SetLen(len(d.bufs[i]))
		v[1].Base = nil
		d.hdrs[i].Hdr.SetIovlen(1)
	}
	for i := range k {
		if !d.whole(i) {
			continue
		}
		size, buf, slot := int(d.hdrs[i].Len), d.bufs[i], slots[i]
		head := min(size, Split)
		body := min(size-head, len(slot))
		dst[n] = RxFrame{Head: buf[:head], Body: slot[:body], Rest: buf[head:][:size-head-body], buf: buf}
		n++
	}
	return n, err
}
