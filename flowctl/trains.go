package flowctl

// Some kernels spoil the last datagram of a message that they cut up (GSO) where it is as long as the others, and
// nobody tells. The sender alone can notice: of the packets that are lost, nearly all were the last of a message, and
// the one before arrived. Which packets left in one message is worked out when one is lost, so that the others cost
// nothing.

// Message is how a driver makes messages of packets that leave one after the other.
type Message struct {
	Least   int // bytes of a packet: one that is no longer leaves alone
	Most    int // bytes of a message
	Packets int // of a message, at most
}

const (
	batchesKept  = 32  // whose beginnings a path remembers
	longestBatch = 256 // packets
)

// begun are the numbers at which the latest batches began.
type begun struct {
	at [batchesKept]uint64
	n  int
}

// BeginBatch says that the next packet is the first of those that the driver is given together.
func (l *Ledger) BeginBatch() {
	l.batches.at[l.batches.n%batchesKept] = l.next
	l.batches.n++
}

// EndedMessage reports whether packet pn, which was judged lost, was the last of a message of several packets, as long
// as those before it, of which the one before arrived. It does not know of packets that left long ago. It visits the
// packets of one batch.
func (l *Ledger) EndedMessage(pn uint64, m *Message) bool {
	start, end := l.batchOf(pn)
	if start == pn || pn-start > longestBatch || l.next-start > l.mask || !l.arrived(pn-1) {
		return false
	}
	for at := start; at <= pn; {
		step := int(l.slots[at&l.mask].bytes)
		last, size := at, step
		for next := at + 1; step > m.Least && next < end && next-at < uint64(m.Packets); next++ {
			n := int(l.slots[next&l.mask].bytes)
			if n > step || n <= m.Least || size+n > m.Most {
				break
			}
			if last, size = next, size+n; n < step {
				break
			}
		}
		if last >= pn {
			return last == pn && last > at && int(l.slots[pn&l.mask].bytes) == step
		}
		at = last + 1
	}
	return false
}

// batchOf returns the numbers at which the batch of pn began and the next one does; both are pn where that is not
// known.
func (l *Ledger) batchOf(pn uint64) (start, end uint64) {
	end = l.next
	for k := l.batches.n - 1; k >= 0 && k >= l.batches.n-batchesKept; k-- {
		if start = l.batches.at[k%batchesKept]; start <= pn {
			return start, end
		}
		end = start
	}
	return pn, pn
}

// arrived reports whether a packet, whose slot has no later user, was acknowledged.
func (l *Ledger) arrived(pn uint64) bool {
	word, bit := pn>>6&l.wordMask, pn&63
	return (l.out[word]|l.lost[word])>>bit&1 == 0
}
