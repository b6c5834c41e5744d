// Package bytestream is what a connection that carries bytes in order is measured by. TCP (package contender) and
// edge's streams (package workload) do exactly this, so that they can be compared.
package bytestream

import (
	"encoding/binary"
	"errors"
	"io"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/mono"
)

// Conn is one end of a connection.
type Conn interface {
	io.ReadWriteCloser
	CloseWrite() error // the peer reads io.EOF behind what was written
}

// End is one end of a connection with the memory its program has: too large for any cache, used from one end to the
// other.
type End struct {
	Conn   Conn
	size   int
	source []byte // what is written
	target []byte // where what is read goes

	// in place of Conn's Write and io.ReadFull, where the memory is not the End's own (NewEndOn)
	write func(off, n int) (int, error)
	read  func(off, n int) (int, error)
}

// NewEndOn returns an end for messages of size bytes with memory of the caller's, which write and read use.
func NewEndOn(size int, source, target []byte, write, read func(off, n int) (int, error)) *End {
	return &End{size: max(size, 1), source: source, target: target, write: write, read: read}
}

// put writes the message of the source at off, get reads up to n bytes into the target, getAll a message. They end by
// kit.Check, but for get at the end of the stream.
func (e *End) put(off int) {
	if e.write != nil {
		kit.Get(e.write(off, e.size))
	} else {
		kit.Get(e.Conn.Write(e.source[off : off+e.size]))
	}
}

func (e *End) get(off, n int) (int, error) {
	if e.read != nil {
		return e.read(off, n)
	}
	return e.Conn.Read(e.target[off : off+n])
}

func (e *End) getAll(off int) error {
	if e.read != nil {
		_, err := e.read(off, e.size)
		return err
	}
	_, err := io.ReadFull(e.Conn, e.target[off:off+e.size])
	return err
}

// NewEnd returns an end for messages of size bytes with memory of region bytes, to be closed. It has no connection yet.
func NewEnd(size, region int, writes, reads bool) (*End, error) {
	e := &End{size: max(size, 1)}
	var err error
	if writes {
		e.source, err = Memory(region)
	}
	if reads && err == nil {
		e.target, err = Memory(region)
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// Close closes the connection, if there is one, and gives the memory back. Nothing may use the end any more.
func (e *End) Close() {
	if e.Conn != nil {
		e.Conn.Close() // everything that counts was confirmed
	}
	if e.write == nil {
		Free(e.source)
		Free(e.target)
	}
}

// mostRead is how much a receiver asks for at once.
const mostRead = 1 << 20

// Send writes messages, one at least, until the time is over, then waits until the peer, in Receive, has everything. It
// returns how many it wrote. It ends by kit.Check if that fails, as do Receive, Ping and Pong.
func (e *End) Send(stop mono.Time) (messages uint64) {
	for off := 0; messages == 0 || mono.Now() < stop; off = e.next(off) {
		e.put(off)
		messages++
	}
	kit.Check(e.Conn.CloseWrite())
	var b [8]byte
	_, err := io.ReadFull(e.Conn, b[:])
	kit.Checkf(err, "the receiver did not confirm the end")
	if sent, received := messages*uint64(e.size), binary.LittleEndian.Uint64(b[:]); sent != received {
		kit.Fail("%d bytes were sent and %d received", sent, received)
	}
	return messages
}

// Receive reads into successive places until the stream ends, and tells the sender how much that was.
func (e *End) Receive() {
	received := uint64(0)
	for off := 0; ; {
		n, err := e.get(off, min(mostRead, len(e.target)-off))
		received += uint64(n)
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		kit.Check(err)
		if off += n; off == len(e.target) {
			off = 0
		}
	}
	kit.Get(e.Conn.Write(binary.LittleEndian.AppendUint64(nil, received)))
}

// Ping writes a message, reads one, and so on, once at least, until the time is over. lat gets the round trips. It
// returns how many there were.
func (e *End) Ping(stop mono.Time, lat *report.Recorder) (messages uint64) {
	err := kit.Try(func() {
		for now, off := mono.Now(), 0; messages == 0 || now < stop; off = e.next(off) {
			e.put(off)
			kit.Check(e.getAll(off))
			t := mono.Now()
			lat.Record(t.Sub(now))
			now = t
			messages++
		}
	})
	kit.Check(errors.Join(err, e.Conn.CloseWrite()))
	return messages
}

// Pong answers each message of Ping with one of the same size. It returns how many there were.
func (e *End) Pong() (messages uint64) {
	for off := 0; ; off = e.next(off) {
		err := e.getAll(off)
		if err == io.EOF {
			return messages
		}
		kit.Check(err)
		e.put(off)
		messages++
	}
}

// next returns the place of the message behind the one at off.
func (e *End) next(off int) int {
	if off += e.size; off+e.size > max(len(e.source), len(e.target)) {
		return 0
	}
	return off
}
