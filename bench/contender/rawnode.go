package contender

import (
	"context"
	"crypto/cipher"
	"encoding/binary"
	"sync/atomic"

	"multiedge/bench/kit"
	"multiedge/internal/aesgcm"
	"multiedge/internal/mono"
	"multiedge/linkdrv"
)

// rawNode is one end of a raw measurement. Its thread owns it; sent, got, lost and sending are read by the peer's.
type rawNode struct {
	links          []linkdrv.Driver
	at             []linkdrv.Addr // of IP links
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
	yields  uint64

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
func (n *rawNode) send() int {
	room := min(n.batch, n.window*len(n.links)-n.outstanding())
	if room <= 0 {
		return 0
	}
	_, k := n.batchOf(room, false)
	n.turn()
	return k
}

// batchOf sends up to so many frames on the link whose turn it is, from where it stands; with whole no further than to
// the end of the message that it is in, or at the beginning of. It returns how many it offered, and how many left.
func (n *rawNode) batchOf(most int, whole bool) (offered, left int) {
	frames := n.frames[n.link][:0]
	off, done := n.off, n.done
	for i := 0; i < most && (!whole || i == 0 || done > 0); i++ {
		var f linkdrv.TxFrame
		f, off, done = n.next(n.heads[n.link][i], off, done)
		if len(n.peer.at) > 0 {
			f.To = n.peer.at[n.link]
		}
		frames = append(frames, f)
	}
	left, err := n.links[n.link].Send(frames)
	for range left {
		_, n.off, n.done = n.next(nil, n.off, n.done)
	}
	n.sent += uint64(left)
	kit.Check(err)
	return len(frames), left
}

// turn moves on to the next link.
func (n *rawNode) turn() {
	if n.link++; n.link == len(n.links) {
		n.link = 0
	}
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
func (n *rawNode) sendMessage(ctx context.Context) {
	for begun := false; !begun || n.done > 0; {
		offered, left := n.batchOf(min(n.batch, n.window*len(n.links)-n.outstanding()), true)
		begun = begun || left > 0
		if left < max(offered, 1) {
			n.idle(1 << 20)
			kit.Check(ctx.Err())
		}
	}
	n.turn()
}

// receive takes what has arrived on all links and copies it into place.
func (n *rawNode) receive() (total int) {
	for _, d := range n.links {
		k := kit.Get(d.Recv(n.rx))
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
	return total
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

const (
	rawTag   = aesgcm.TagSize // bytes that sealing adds to a frame
	rawClear = 64             // bytes of a frame's head that are authenticated: all that says something
)

// rawSeal seals and opens the payloads of raw frames, with a key that everybody knows: it is there for what it costs.
type rawSeal struct {
	aead    cipher.AEAD
	sealed  uint64 // frames, the nonce of the next
	nonce   [12]byte
	scratch []byte
}

func newRawSeal(stdlib bool) *rawSeal {
	key := make([]byte, aesgcm.KeySize)
	s := &rawSeal{aead: aesgcm.New(key), scratch: make([]byte, 1<<16)}
	if stdlib {
		s.aead = aesgcm.NewStandard(key)
	}
	return s
}

// seal appends the sealed payload to head, which has room for it, and says in it which nonce was used.
func (s *rawSeal) seal(head, payload []byte) []byte {
	s.sealed++
	binary.BigEndian.PutUint64(head[rawPlace+12:], s.sealed)
	return s.aead.Seal(head, s.nonceOf(s.sealed), payload, head[:rawClear])
}

// open returns the payload of length bytes in frame, nil if it was changed. It is valid until the next call.
func (s *rawSeal) open(frame []byte, length uint64) []byte {
	if uint64(len(frame)) < rawHead+length+rawTag {
		return nil
	}
	payload, err := s.aead.Open(s.scratch[:0], s.nonceOf(binary.BigEndian.Uint64(frame[rawPlace+12:])),
		frame[rawHead:rawHead+length+rawTag], frame[:rawClear])
	if err != nil {
		return nil
	}
	return payload
}

func (s *rawSeal) nonceOf(n uint64) []byte {
	binary.BigEndian.PutUint64(s.nonce[4:], n)
	return s.nonce[:]
}
