package engine

import (
	"multiedge/internal/frame"
	"multiedge/internal/wire"
)

// TxFrame is one frame to send on local link Link. Bulk points into registered memory, Head and Tail into the batch.
type TxFrame struct {
	Link int
	frame.Tx
}

// Batch receives frames from PollTransmit. Its buffers are reused after Reset; until then the frames in it stay valid.
type Batch struct {
	Frames []TxFrame
	bufs   [][]byte
	stages [][]byte // likewise, for payloads that were gathered; made when there is the first
	bytes  int      // of Frames
	most   int      // bytes; once it carries so much it is full
}

// How many bytes one batch carries, about. Payloads that are summed or sealed here leave a few at a time on each link,
// so that the receiver opens the first while later ones are being sealed; once it has frames to open, as many bytes as
// are in flight.
const (
	batchPlain   = 256 << 10
	batchTouched = 32 << 10 // for each link that is up
)

// NewBatch returns a batch of up to n frames, each up to maxFrame bytes after the Ethernet header. Its buffers are
// resident.
func NewBatch(n, maxFrame int) *Batch {
	b := &Batch{Frames: make([]TxFrame, 0, n), bufs: make([][]byte, n)}
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
func (b *Batch) Reset() { b.Frames, b.bytes = b.Frames[:0], 0 }

func (b *Batch) full() bool { return len(b.Frames) == cap(b.Frames) || b.bytes >= b.most }

// next returns the buffer of the frame to be added.
func (b *Batch) next() []byte { return b.bufs[len(b.Frames)] }

// add adds a frame, to be filled in its place: a copy would wait for the parts it was just put together from.
func (b *Batch) add() *TxFrame {
	b.Frames = append(b.Frames, TxFrame{})
	return &b.Frames[len(b.Frames)-1]
}

// stage returns room for n bytes of payload beside the buffer of the frame to be added.
func (b *Batch) stage(n int) []byte {
	i := len(b.Frames)
	if b.stages == nil {
		b.stages = make([][]byte, cap(b.Frames))
	}
	if len(b.stages[i]) < n {
		b.stages[i] = make([]byte, len(b.bufs[i]))
	}
	return b.stages[i][:n]
}
