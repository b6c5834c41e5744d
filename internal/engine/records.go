package engine

import "multiedge/internal/seqnum"

// recKind says what a frame carried, so that it can be sent again if the frame is lost or acted on when it arrives.
type recKind uint8

const (
	recOps    recKind = iota // count whole small writes or read requests, from op on
	recRange                 // bytes [off, off+n) of the write op
	recLocal                 // the same, of a write that completes when they have all been received
	recAnswer                // bytes [off, off+n) of the answer to the peer's op
	recOpAck
	recOpNak
	recControl // control bits of the connection, in off
	recAdvert  // advert number off of the connection; with n = 1 its withdrawal
	recLink    // news of our link, in off
	recKeys    // Keys of exchange off
	recStage   // bytes [off, off+n) of our composed message op, with stamp count
	// Discard or Unstaged, which off says, of composed message op
	recEagerWord
)

// record is one thing that a frame in flight carries. Records of a frame are a list through next; the ledger's tag is
// its head.
type record struct {
	kind  recKind
	retx  bool
	conn  ConnID
	op    seqnum.Value
	count uint32
	off   uint64
	n     uint64
	next  int32
}

// records is the pool of records of all frames in flight. It grows to what the windows need and then stays. Index 0 is
// the end of a list.
type records struct {
	pool []record
	free int32
}

func (r *records) init() { r.pool = make([]record, 1, 64) }

// alloc returns a record, to be filled before the next call, and its index.
func (r *records) alloc() (i int32, _ *record) {
	if i = r.free; i == 0 {
		r.pool = append(r.pool, record{})
		i = int32(len(r.pool) - 1)
	} else {
		r.free = r.pool[i].next
	}
	return i, &r.pool[i]
}

// release gives a whole list back.
func (r *records) release(head int32) {
	for head != 0 {
		next := r.pool[head].next
		r.pool[head].next = r.free
		r.free = head
		head = next
	}
}
