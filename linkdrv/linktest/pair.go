package linktest

import (
	"encoding/binary"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"multiedge/linkdrv"
)

// Kind is the Info().Kind of an End.
const Kind = "memory"

// End is one end of a link in memory. Each end serves goroutines of its own, as a Driver does: one that receives and
// one that sends.
//
// It behaves like the ring driver: a frame sent is copied into a free slot of the other end, or dropped and counted
// there if no slot is free; slots handed out by Recv stay the caller's until the next Recv. There is no address filter.
type End struct {
	info  linkdrv.Info
	rx    queue
	peer  *End
	stats linkdrv.Stats // send side only
}

var _ linkdrv.Driver = (*End)(nil)

// Pair returns the two ends of a link whose frames carry up to mtu bytes after the Ethernet header, each end with that
// many receive slots.
func Pair(mtu, slots int) (a, b *End) { return PairN(0, mtu, slots) }

// PairN is Pair for one of several links: k makes names, indices and addresses distinct, and the same in every run.
func PairN(k, mtu, slots int) (a, b *End) {
	if mtu < 1 || slots < 1 {
		panic(fmt.Sprintf("BUG: linktest.Pair(%d, %d): both must be positive", mtu, slots))
	}
	a, b = newEnd(2*k+1, fmt.Sprintf("mem%da", k), mtu, slots), newEnd(2*k+2, fmt.Sprintf("mem%db", k), mtu, slots)
	a.peer, b.peer = b, a
	return a, b
}

func newEnd(index int, name string, mtu, slots int) *End {
	mac := net.HardwareAddr{0x02, 0x4d, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(mac[2:], uint32(index))
	e := &End{info: linkdrv.Info{Name: name, Index: index, MAC: mac, MTU: mtu, RxSlots: slots, Kind: Kind}}
	e.rx = queue{slots: make([][]byte, slots), limit: mtu + linkdrv.HeaderLen, event: -1}
	return e
}

// Send implements linkdrv.Driver.
func (e *End) Send(frames []linkdrv.TxFrame) (n int, err error) {
	e.stats.SendCalls++
	for i := range frames {
		f := &frames[i]
		if err := e.refuse(f); err != nil {
			e.stats.Refused++
			return i + 1, err
		}
		if err := e.rx.state(); err != nil {
			return i, err
		}
		e.peer.rx.put(f)
		e.stats.Sent++
	}
	return len(frames), nil
}

// refuse is why the link does not take a frame; nil: it does.
func (e *End) refuse(f *linkdrv.TxFrame) error {
	switch {
	case len(f.Head) < linkdrv.HeaderLen:
		return linkdrv.ErrBadFrame
	case f.Len() > e.info.MTU+linkdrv.HeaderLen:
		return linkdrv.ErrTooLong
	}
	return nil
}

// Recv implements linkdrv.Driver.
func (e *End) Recv(dst [][]byte) (int, error) { return e.rx.take(dst) }

// FD returns an eventfd, made by the first call, that is readable while frames wait; -1 if there is none to be had. An
// end that is never asked for it makes no system calls.
func (e *End) FD() int { return e.rx.descriptor() }

// Info implements linkdrv.Driver.
func (e *End) Info() linkdrv.Info { return e.info }

// Stats implements linkdrv.Driver.
func (e *End) Stats() (linkdrv.Stats, error) {
	s := e.stats
	e.rx.mu.Lock()
	defer e.rx.mu.Unlock()
	s.Received, s.Dropped = e.rx.received, e.rx.dropped
	return s, nil
}

// SetDown makes this end behave like an interface that is set down, or up again: Send and Recv say ErrLinkDown and what
// the other end sends is lost. Any goroutine may call it.
func (e *End) SetDown(down bool) {
	e.rx.mu.Lock()
	defer e.rx.mu.Unlock()
	e.rx.down = down
	e.rx.signal()
}

// Close implements linkdrv.Driver. What the other end sends from now on is lost.
func (e *End) Close() error {
	e.rx.mu.Lock()
	defer e.rx.mu.Unlock()
	if e.rx.event >= 0 {
		unix.Close(e.rx.event)
	}
	e.rx.event, e.rx.closed = -1, true
	return nil
}
