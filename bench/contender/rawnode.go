package contender

import (
	"context"
	"encoding/binary"
	"sync/atomic"

	"multiedge/internal/mono"
	"multiedge/linkdrv"
)

// rawNode is one end of a raw measurement. Its thread owns it; sent, got, lost and sending are read by the peer's.
type rawNode struct {
	links          []linkdrv.Driver
	peer           *rawNode
	source, target []byte
	payload        int // of a full frame
	size           int // of a message
	window         int // frames in flight on a link
	batch          int // frames per system call
	sealed         *rawSeal

	frames [][]linkdrv.TxFrame // by link: the batch being sent
	heads  [][][]byte
	rx     [][]byte
	link   int // that sends next
	off    int // in source: of the message being sent
	done   int // bytes of that message sent already

	sent    uint64        // frames; own thread
	got     atomic.Uint64 // frames
	sending atomic.Bool
	bytesIn uint64
	lost    uint64 // frames given up

	sentBefore, gotBefore, lostBefore uint64 // before what counts

	lastMoved mono.Time
}

// address prepares the heads of frames to the peer, and learns how many are safe: a ring gives slots back only when it
// is read again, so that frames in flight and a batch that was taken must fit together.
func (n *rawNode) address(peer *rawNode) {
	n.window = rawWindow
	for l, d := range n.links {
		n.window = max(1, min(n.window, peer.links[l].Info().RxSlots/2))
		n.rx = n.rx[:max(1, min(len(n.rx), d.Info().RxSlots/4))]
		n.heads[l], n.frames[l] = make([][]byte, n.batch), make([]linkdrv.TxFrame, n.batch)
		for i := range n.heads[l] {
			h := make([]byte, rawHead, rawHead+n.payload+rawTag)
			copy(h[0:6], peer.links[l].Info().MAC)
			copy(h[6:12], d.Info().MAC)
			binary.BigEndian.PutUint16(h[12:], rawType)
			n.heads[l][i] = h
		}
	}
}

// outstanding is how many frames are on their way.
func (n *rawNode) outstanding() int { return int(n.sent - n.lost - n.peer.got.Load()) }

// send fills one batch on the next link, as the window allows, and returns how many frames left.
func (n *rawNode) send() (int, error) {
	room := min(n.batch, n.window*len(n.links)-n.outstanding())
	if room <= 0 {
		return 0, nil
	}
	frames := n.frames[n.link][:0]
	off, done := n.off, n.done
	for i := range room {
		var f linkdrv.TxFrame
		f, off, done = n.next(n.heads[n.link][i], off, done)
		frames = append(frames, f)
	}
	k, err := n.links[n.link].Send(frames)
	for range k {
		_, n.off, n.done = n.next(nil, n.off, n.done)
	}
	n.sent += uint64(k)
	if n.link++; n.link == len(n.links) {
		n.link = 0
	}
	return k, err
}

// next describes the frame at position (off, done) in head, if head is not nil, and returns the position behind it.
func (n *rawNode) next(head []byte, off, done int) (linkdrv.TxFrame, int, int) {
	length := min(n.payload, n.size-done)
	var f linkdrv.TxFrame
	if head != nil {
		binary.BigEndian.PutUint64(head[rawPlace:], uint64(off+done))
		binary.BigEndian.PutUint32(head[rawPlace+8:], uint32(length))
		joined := length > rawAlone
		f = linkdrv.TxFrame{Head: head, Bulk: n.source[off+done : off+done+length], Joined: joined}
		if n.sealed != nil {
			f = linkdrv.TxFrame{Head: n.sealed.seal(head, f.Bulk), Joined: joined}
		}
	}
	if done += length; done < n.size {
		return f, off, done
	}
	if off += max(n.size, 1); off+n.size > len(n.source) {
		off = 0
	}
	return f, off, 0
}

// sendMessage sends one message whole.
func (n *rawNode) sendMessage(ctx context.Context) error {
	for first := true; first || n.done > 0; {
		room := n.window*len(n.links) - n.outstanding()
		frames := n.frames[n.link][:0]
		off, done := n.off, n.done
		for i := 0; i < min(n.batch, room) && (first || done > 0); i++ {
			var f linkdrv.TxFrame
			f, off, done = n.next(n.heads[n.link][i], off, done)
			frames = append(frames, f)
			first = false
		}
		k, err := n.links[n.link].Send(frames)
		if err != nil {
			return err
		}
		for range k {
			_, n.off, n.done = n.next(nil, n.off, n.done)
		}
		n.sent += uint64(k)
		if k < len(frames) {
			first = n.done == 0 && k == 0
			idle(1 << 20)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	if n.link++; n.link == len(n.links) {
		n.link = 0
	}
	return nil
}

// receive takes what has arrived on all links and copies it into place.
func (n *rawNode) receive() (int, error) {
	total := 0
	for _, d := range n.links {
		k, err := d.Recv(n.rx)
		if err != nil {
			return total, err
		}
		for _, f := range n.rx[:k] {
			if len(f) < rawHead {
				continue
			}
			off, length := binary.BigEndian.Uint64(f[rawPlace:]), uint64(binary.BigEndian.Uint32(f[rawPlace+8:]))
			if length <= uint64(len(f)-rawHead) && off <= uint64(len(n.target)) && length <= uint64(len(n.target))-off {
				payload := f[rawHead:]
				if n.sealed != nil {
					if payload = n.sealed.open(f, length); payload == nil {
						continue
					}
				}
				copy(n.target[off:off+length], payload)
				n.bytesIn += length
			}
		}
		total += k
	}
	if total > 0 {
		n.got.Add(uint64(total))
	}
	return total, nil
}

// stalled gives up frames in flight when nothing has moved for a while: the kernel dropped them.
func (n *rawNode) stalled(now mono.Time, moved int) {
	if moved > 0 || n.lastMoved == 0 || n.outstanding() == 0 {
		n.lastMoved = now
		return
	}
	if now.Sub(n.lastMoved) > rawPatience {
		n.lost += uint64(n.outstanding())
		n.lastMoved = now
	}
}
