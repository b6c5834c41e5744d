package engine

import (
	"iter"

	"multiedge/internal/frame"
	"multiedge/internal/wire"
)

// Batch has the frames that are to leave on one link. Bulk of a frame points into registered memory, Head and Tail into
// the batch. Its buffers are reused after Reset; until then the frames stay valid, also when they were moved in Frames.
type Batch struct {
	Frames    []frame.Tx
	bufs      [][]byte
	scratches [][]byte // likewise, for payloads that were gathered; made when there is the first
}

// Batches has a batch for each link, and knows what the latest PollTransmit put into them. The caller of PollTransmit
// owns it, and empties the batch of each link that is not blocked before the next call.
type Batches struct {
	of    [MaxLinks]*Batch // nil: the link was never up
	order []uint8          // links of the frames, in the order in which these were made; full when it has no more room
	bytes int              // of the frames
	most  int              // bytes; with so many it is full
	over  bool             // a link's batch has no more room
}

// How many bytes one PollTransmit gives, about. The first are few on each link, so that the receiver opens, sums or
// copies them while later ones are being made; once it has frames to work on, as many bytes as are in flight.
const (
	batchFirst = 32 << 10 // for each link that is up
	batchMost  = 256 << 10
)

// NewBatch returns a batch of up to n frames, each up to maxFrame bytes after the Ethernet header. Its buffers are
// resident.
func NewBatch(n, maxFrame int) *Batch {
	b := &Batch{Frames: make([]frame.Tx, 0, n), bufs: make([][]byte, n)}
	for i := range b.bufs {
		buf := make([]byte, bufShift+wire.HeadLen+maxFrame)
		clear(buf) // fresh memory has no pages before it is written
		b.bufs[i] = buf[bufShift:]
	}
	return b
}

// bufShift puts what follows the Ethernet header on a multiple of 16 bytes, which checksums and copies like.
const bufShift = 16 - frame.HeaderLen

// Reset empties the batch.
func (b *Batch) Reset() { b.Frames = b.Frames[:0] }

// Set makes b the batch of link i, before the endpoint has the link. One PollTransmit gives as many frames, on all
// links together, as the largest batch takes.
func (bs *Batches) Set(i int, b *Batch) {
	bs.of[i] = b
	if n := cap(b.Frames); n > cap(bs.order) {
		bs.order = make([]uint8, 0, n)
	}
}

// All yields the frames of the latest PollTransmit with their links, in the order in which they were made. It is for
// tests and the simulator: it takes no account of batches emptied or frames moved since.
func (bs *Batches) All() iter.Seq2[int, *frame.Tx] {
	return func(yield func(int, *frame.Tx) bool) {
		var next [MaxLinks]int
		for _, link := range bs.order {
			n := next[link]
			next[link]++
			if !yield(int(link), &bs.of[link].Frames[n]) {
				return
			}
		}
	}
}

// Reset empties the batches of the links that have frames of the latest PollTransmit. It is for tests and the
// simulator: a daemon empties the batch of each link when its frames have left.
func (bs *Batches) Reset() {
	for _, link := range bs.order {
		bs.of[link].Reset()
	}
}

// begin begins a PollTransmit.
func (bs *Batches) begin() { bs.order, bs.bytes, bs.over = bs.order[:0], 0, false }

func (bs *Batches) full() bool {
	return bs.over || len(bs.order) == cap(bs.order) || bs.bytes >= bs.most
}

// room is how many more frames fit, if all are for link i, without regard to their bytes.
func (bs *Batches) room(i int) int {
	b := bs.of[i]
	return min(cap(bs.order)-len(bs.order), cap(b.Frames)-len(b.Frames))
}

// scratch is Batch.scratch of link i.
func (bs *Batches) scratch(i, n int) []byte { return bs.of[i].scratch(n) }

// next returns the buffer of the frame to be added for link i.
func (bs *Batches) next(i int) []byte {
	b := bs.of[i]
	return b.bufs[len(b.Frames)]
}

// add adds a frame for link i, to be filled in its place: a copy would wait for the parts it was just put together
// from.
func (bs *Batches) add(i int) *frame.Tx {
	b, n := bs.of[i], len(bs.of[i].Frames)
	b.Frames = b.Frames[:n+1]
	f := &b.Frames[n]
	*f = frame.Tx{}
	bs.order = append(bs.order, uint8(i))
	bs.over = bs.over || n+1 == cap(b.Frames)
	return f
}

// scratch returns room for n bytes of payload beside the buffer of the frame to be added.
func (b *Batch) scratch(n int) []byte {
	i := len(b.Frames)
	if b.scratches == nil {
		b.scratches = make([][]byte, cap(b.Frames))
	}
	if len(b.scratches[i]) < n {
		b.scratches[i] = make([]byte, len(b.bufs[i]))
	}
	return b.scratches[i][:n]
}
