package build

import "multiedge/internal/seqnum"

// Kind says what a frame carried, so that it can be sent again if the frame is lost or acted on when it arrives.
type Kind uint8

const (
	RecOps    Kind = iota // count whole small writes or read requests, from op on
	RecRange              // bytes [off, off+n) of the write op
	RecLocal              // the same, of a write that completes when they have all been received
	RecAnswer             // bytes [off, off+n) of the answer to the peer's op
	RecOpAck
	RecOpNak
	RecControl // control bits of the connection, in off
	RecAdvert  // advert number off of the connection; with n = 1 its withdrawal
	RecLink    // news of our link, in off
	RecKeys    // Keys of exchange off
	RecStage   // bytes [off, off+n) of our composed message op, with stamp count
	// Discard or Unstaged, which off says, of composed message op
	RecEagerWord
)

// Record is one thing that a frame in flight carries. Records of a frame are a list through next; the ledger's tag is
// its head.
type Record struct {
	Kind  Kind
	retx  bool
	Conn  uint32
	Op    seqnum.Value
	Count uint32
	Off   uint64
	N     uint64
	Next  int32
}

// Records is the pool of records of all frames in flight. It grows to what the windows need and then stays. Index 0 is
// the end of a list.
type Records struct {
	Pool []Record
	free int32
}

func (r *Records) Init() { r.Pool = make([]Record, 1, 64) }

// alloc returns a record, to be filled before the next call, and its index.
func (r *Records) alloc() (i int32, _ *Record) {
	if i = r.free; i == 0 {
		r.Pool = append(r.Pool, Record{})
		i = int32(len(r.Pool) - 1)
	} else {
		r.free = r.Pool[i].Next
	}
	return i, &r.Pool[i]
}

// Used is how many there are of frames in flight.
func (r *Records) Used() (n int) {
	n = len(r.Pool) - 1
	for i := r.free; i != 0; i = r.Pool[i].Next {
		n--
	}
	return n
}

// Release gives a whole list back.
func (r *Records) Release(head int32) {
	for head != 0 {
		next := r.Pool[head].Next
		r.Pool[head].Next = r.free
		r.free = head
		head = next
	}
}

// Note notes something that the frame carries.
func (w *Frame) Note(kind Kind, conn uint32, op seqnum.Value, off, n uint64, retx bool) {
	i, r := w.Records.alloc()
	r.Kind, r.Conn, r.Op, r.Count, r.Off, r.N, r.retx, r.Next = kind, conn, op, 1, off, n, retx, w.Recs
	w.Recs = i
	w.Retx = w.Retx || retx
}

// NoteOp notes a whole small operation, extending the record before it when they are consecutive.
func (w *Frame) NoteOp(conn uint32, op seqnum.Value, retx bool) {
	if w.Recs != 0 {
		r := &w.Records.Pool[w.Recs]
		if r.Kind == RecOps && r.Conn == conn && r.Op.Add(int(r.Count)) == op && r.retx == retx {
			r.Count++
			return
		}
	}
	w.Note(RecOps, conn, op, 0, 0, retx)
}

// RecHeard is the kinds of records whose arrival matters.
const RecHeard = 1<<RecLocal | 1<<RecAnswer | 1<<RecOpNak | 1<<RecControl | 1<<RecAdvert | 1<<RecEagerWord
