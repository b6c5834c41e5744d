package dsm

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// RunTCP is Run with the same protocol over TCP, to compare the two. Of the Config it uses Rank, Ranks, Size, Locks,
// Log and Observe. With each other rank there are two connections: over to this rank asks it, over from it asks this
// one. RunTCP closes them. Nothing is encrypted or authenticated: ranks trust each other, and the network. Requests,
// those of Prefetch among them, leave at the next wait. A rank that ends waits for the others until ctx ends.
func RunTCP(ctx context.Context, c Config, to, from []*net.TCPConn, f func(*Memory) error) error {
	closeAll := func() {
		for _, list := range [][]*net.TCPConn{to, from} {
			for _, conn := range list {
				if conn != nil {
					conn.Close()
				}
			}
		}
	}
	defer closeAll()
	c.Name, c.Root, c.Checked = "tcp", "tcp", false
	if err := c.complete(); err != nil {
		return err
	}
	if len(to) != c.Ranks || len(from) != c.Ranks {
		return invalid("%d and %d connections for %d ranks", len(to), len(from), c.Ranks)
	}
	for q := range to {
		if q != c.Rank && (to[q] == nil || from[q] == nil) {
			return invalid("rank %d has no connection with rank %d", c.Rank, q)
		}
	}
	t := &overTCP{rank: c.Rank, asked: make([]*asked, c.Ranks), settled: make(chan struct{}, 1),
		notes: make(chan noted, c.Ranks*mostPosted)}
	lay := newLayout(&c)
	for i, size := range [2]int{control: lay.size, data: c.Size} {
		b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return fmt.Errorf("dsm: mapping %d bytes: %w", size, err)
		}
		defer unix.Munmap(b)
		t.areas[i] = b
	}
	t.ctx, t.end = context.WithCancelCause(ctx)
	context.AfterFunc(t.ctx, closeAll) // whoever reads or writes ends
	for q := range to {
		if q != c.Rank {
			t.asked[q] = &asked{conn: to[q], out: bufio.NewWriterSize(to[q], bufferTCP),
				orders: make(chan order, mostPosted)}
			t.ends.Go(func() { t.hear(q) })
			t.ends.Go(func() { t.serve(q, from[q]) })
		}
	}
	err := errPanic
	defer func() { // before the memory is unmapped
		t.end(err)
		t.ends.Wait()
	}()
	if err = runOver(&c, t, f); err == nil {
		err = protect(t.part)
	}
	return err
}

// overTCP is the transport over TCP. A rank writes its requests to a connection. The other rank performs them in the
// order in which they were written, which satisfies every fence, and answers each: a read by its bytes, an atomic by
// the old value, a write by one byte.
type overTCP struct {
	ctx     context.Context // ends, with the cause, when a rank is lost
	end     context.CancelCauseFunc
	ends    sync.WaitGroup // of the goroutines
	rank    int
	areas   [2][]byte
	asked   []*asked      // by rank; nil: this one
	left    atomic.Int64  // requests that were not answered
	atomics atomic.Int64  // of them, atomics
	settled chan struct{} // a token when either became zero
	notes   chan noted
}

// asked is another rank, as this one asks it.
type asked struct {
	conn    *net.TCPConn
	out     *bufio.Writer
	request [requestSize]byte
	orders  chan order  // that were posted: answers come in this order
	parted  atomic.Bool // nothing is asked any more
}

// noted is a notification.
type noted struct {
	rank int
	note uint32
}

// A request is a verb, an area, a notification, and 8 bytes each for there, n, operand and compare. The bytes of a
// write follow.
const (
	requestSize = 40
	bufferTCP   = 64 << 10
)

func (t *overTCP) memory() (data_, control_ []byte) { return t.areas[data], t.areas[control] }

func (t *overTCP) post(rank int, o order) {
	if rank == t.rank {
		perform(t.areas[o.area], &o)
		return
	}
	if t.left.Load() == mostPosted {
		t.wait()
	}
	a := t.asked[rank]
	a.orders <- o
	t.left.Add(1)
	if o.verb >= swap {
		t.atomics.Add(1)
	}
	b := a.request[:]
	b[0], b[1] = byte(o.verb), byte(o.area)
	binary.LittleEndian.PutUint32(b[4:], o.note)
	for i, v := range [...]uint64{uint64(o.there), uint64(o.n), o.operand, o.compare} {
		binary.LittleEndian.PutUint64(b[8+8*i:], v)
	}
	_, err := a.out.Write(b)
	if err == nil && o.verb == write {
		_, err = a.out.Write(t.areas[o.area][o.here : o.here+o.n])
	}
	t.check(rank, err)
	if o.note != 0 {
		t.check(rank, a.out.Flush())
	}
}

// flush sends what was posted.
func (t *overTCP) flush() {
	for rank, a := range t.asked {
		if a != nil && a.out.Buffered() > 0 {
			t.check(rank, a.out.Flush())
		}
	}
}

func (t *overTCP) wait() { t.until(&t.left) }

func (t *overTCP) answer() { t.until(&t.atomics) }

func (t *overTCP) until(left *atomic.Int64) {
	t.flush()
	for left.Load() > 0 {
		select {
		case <-t.settled:
		case <-t.ctx.Done():
			fail(context.Cause(t.ctx))
		}
	}
}

func (t *overTCP) next(wait bool) (rank int, note uint32, ok bool) {
	if wait {
		t.flush()
		select {
		case n := <-t.notes:
			return n.rank, n.note, true
		case <-t.ctx.Done():
			fail(context.Cause(t.ctx))
		}
	}
	select {
	case n := <-t.notes:
		return n.rank, n.note, true
	default:
		return 0, 0, false
	}
}

// check fails if what was asked of a rank could not be sent.
func (t *overTCP) check(rank int, err error) {
	if err == nil {
		return
	}
	t.lose(rank, err)
	fail(context.Cause(t.ctx))
}

// lose ends the run, since the connections with a rank have ended.
func (t *overTCP) lose(rank int, err error) {
	t.end(&lost{rank, t.asked[rank].conn.RemoteAddr().String(), err})
}

// part waits until all ranks are at the end of their functions, and have been answered: what each serves ends then.
func (t *overTCP) part() error {
	t.wait()
	for rank, a := range t.asked {
		if a != nil {
			a.parted.Store(true)
			t.check(rank, a.conn.CloseWrite())
		}
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		t.ends.Wait()
	}()
	select {
	case <-over:
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	}
	return nil
}

// hear takes the answers of a rank, which closes its end when it has heard that it is asked no more.
func (t *overTCP) hear(rank int) {
	a := t.asked[rank]
	in := bufio.NewReaderSize(a.conn, bufferTCP)
	for {
		_, err := in.Peek(1)
		if err == io.EOF && a.parted.Load() {
			return
		}
		if err == nil {
			select {
			case o := <-a.orders:
				err = t.take(in, &o)
			default:
				err = errAnswer
			}
		}
		if err != nil {
			t.lose(rank, err)
			return
		}
	}
}

// take takes the answer to an order. One that is lost counts as none: who waits for it hears that the rank is.
func (t *overTCP) take(in *bufio.Reader, o *order) (err error) {
	over := false
	switch o.verb {
	case read:
		_, err = io.ReadFull(in, t.areas[o.area][o.here:o.here+o.n])
	case write:
		_, err = in.ReadByte()
	default:
		var b [8]byte
		if _, err = io.ReadFull(in, b[:]); err == nil {
			*o.was = binary.LittleEndian.Uint64(b[:])
			over = t.atomics.Add(-1) == 0
		}
	}
	if err != nil {
		return err
	}
	if t.left.Add(-1) == 0 || over {
		select {
		case t.settled <- struct{}{}:
		default: // there is a token
		}
	}
	return nil
}

// serve does what a rank asks for, until it has no more to ask.
func (t *overTCP) serve(rank int, c *net.TCPConn) {
	in, out := bufio.NewReaderSize(c, bufferTCP), bufio.NewWriterSize(c, bufferTCP)
	var request [requestSize]byte
	for {
		if in.Buffered() < len(request) && out.Buffered() > 0 { // it may wait for the answers before it goes on
			if err := out.Flush(); err != nil {
				t.lose(rank, err)
				return
			}
		}
		_, err := io.ReadFull(in, request[:])
		if err == io.EOF {
			_ = c.CloseWrite() // it hears that all is answered
			return
		}
		if err == nil {
			err = t.serveOne(rank, request[:], in, out)
		}
		if err != nil {
			t.lose(rank, err)
			return
		}
	}
}

// serveOne performs a request and writes the answer.
func (t *overTCP) serveOne(rank int, b []byte, in *bufio.Reader, out *bufio.Writer) error {
	field := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8+8*i:]) }
	var was uint64
	o := order{verb: verb(b[0]), area: area(b[1]), note: binary.LittleEndian.Uint32(b[4:]), there: int(field(0)),
		n: int(field(1)), operand: field(2), compare: field(3), was: &was}
	if o.verb >= swap {
		o.n = 8
	}
	if o.verb > compareSwap || o.area > data || o.there < 0 || o.n < 0 || o.there > len(t.areas[o.area])-o.n ||
		o.verb >= swap && (o.area != control || o.there%8 != 0) {
		return errRequest
	}
	memory := t.areas[o.area][o.there : o.there+o.n]
	switch o.verb {
	case read:
		_, err := out.Write(memory)
		return err
	case write:
		if _, err := io.ReadFull(in, memory); err != nil {
			return err
		}
		if o.note != 0 {
			select {
			case t.notes <- noted{rank, o.note}:
			case <-t.ctx.Done():
			}
		}
		return out.WriteByte(0)
	}
	perform(t.areas[o.area], &o)
	_, err := out.Write(binary.LittleEndian.AppendUint64(nil, was))
	return err
}

var (
	errRequest = errors.New("it asks for memory that is not there")
	errAnswer  = errors.New("it answers what nobody asked")
)
