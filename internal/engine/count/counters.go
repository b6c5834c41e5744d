// Package count has what an endpoint counts.
package count

import (
	"reflect"

	"multiedge/internal/hist"
	"multiedge/regmem"
)

// Counters are plain words of one endpoint or link; the owner's thread alone writes them. All count from the start of
// the endpoint. Their names are those of the metrics and of the status; those of the parts are not.
type Counters struct {
	Traffic Traffic
	Loss    Loss
	Placing Placing
	Reject  Reject
	Trust   Trust
	Op      Op
	Eager   Eager
	Miss    Miss
	Life    Life
}

// Traffic counts what was sent and received.
type Traffic struct {
	FramesSent, FramesReceived         uint64 // Ethernet frames of this protocol
	BytesSent, BytesReceived           uint64 // of those frames, Ethernet header included
	PayloadSent, PayloadReceived       uint64 // bytes of operations; sent counts retransmissions too
	DataFramesSent, DataFramesReceived uint64 // eliciting frames
}

// Loss counts acknowledgements and what did not arrive once and in order.
type Loss struct {
	AcksExplicit        uint64 // frames sent only to acknowledge
	NacksSent           uint64 // acknowledgement blocks that name a gap
	FramesRetransmitted uint64 // frames that carry something sent before
	FramesLost          uint64 // frames judged lost, but for probes of frame size and of dead paths
	TrainEndsLost       uint64 // of FramesLost: the last of several that left as one message, alone of the last two
	SpuriousLosses      uint64 // judged lost, acknowledged later; probes of frame size too
	TailProbes          uint64 // probe timeouts of paths in use
	FramesDuplicated    uint64 // received with a packet number seen before
	FramesMarked        uint64 // of IP links that routers marked on their way (ECN), as peers say
	FramesReordered     uint64 // received behind a later one of the same path
	SegmentsDuplicated  uint64 // parts of operations that were in place already
}

// Placing counts how payloads came to their place otherwise than by a copy of the endpoint's thread.
type Placing struct {
	FramesFromReaders uint64 // that a Reader looked at first
	FramesInTrains    uint64 // that continued the operation of the frame before them, and were taken with it
	FramesShuffled    uint64 // received with their first payload bytes behind the others, which are put back
	FramesInPlace     uint64 // payloads that the driver received at their place: no copy
	FramesExchanged   uint64 // payloads received into pages that were then exchanged for those of their place: no copy
	Exchanges         uint64 // runs of pages exchanged
	BytesExchanged    uint64 // in those runs
	BytesUnexchanged  uint64 // received for an exchange that did not come about, and copied
	BytesRedirected   uint64 // that redirections which have ended tell of
}

// Reject counts frames that were dropped, by reason.
type Reject struct {
	RejectedMalformed  uint64
	RejectedHeaderSum  uint64
	RejectedPayloadSum uint64
	RejectedVersion    uint64
	RejectedNoRoom     uint64 // left unreceived because nothing could hold them
	RejectedAuth       uint64 // sealed frames that no key opens, and plaintext where only sealed frames may come
	RejectedPlace      uint64 // of peers, from addresses that the configuration does not allow them
	RejectedCookie     uint64 // Init without a good cookie; most are the first of an honest peer
	UnknownSession     uint64
}

// Trust counts handshakes, keys and identities.
type Trust struct {
	HandshakesFailed uint64 // given up, or ended by an error
	KeyExchanges     uint64 // after which a session seals with fresh keys
	KeysWorn         uint64 // sessions that ended since the exchange of fresh keys did not end in time
	StrangersRefused uint64 // peers that proved a key which is not authorised here
	IdentityClaims   uint64 // Hellos of other hosts with this node's identity
}

// Op counts operations.
type Op struct {
	OpsSubmitted, OpsCompleted uint64 // ours
	OpsFailed                  uint64 // completed with another status than success
	OpsApplied                 uint64 // operations of peers applied here
	SegmentsHeld               uint64 // parts of operations that waited behind a fence
	AtomicsPerformed           uint64 // of peers, here
	AccessRefused              uint64 // negative answers sent for bad keys, permissions, bounds
	GuessesIgnored             uint64 // operations with wrong keys that got no answer: there were too many
	Notifications              uint64
	WritesCopied               uint64 // with LocalDone: completed because they were copied
	WritesAcked                uint64 // likewise: because the peer had received them
	OpsFailedLate              uint64 // of OpsFailed, those that had completed with LocalDone

	MessagesReceived   uint64 // of peers, whole in a buffer that was posted for them
	MessagesTooLong    uint64 // of peers, refused: longer than their buffer
	MessagesUnbuffered uint64 // of peers, refused: no buffer was posted, and they did not wait
	SendsWaited        uint64 // ours, that found no buffer posted at the peer when they were submitted
}

// Eager counts composed messages (clause 18).
type Eager struct {
	EagerCommitted uint64 // ours, committed when blocks of them had left
	EagerDiscarded uint64 // ours, dropped by their owner
	EagerBytes     uint64 // of ours, sent before the commit; again, if they were written again
	EagerRefused   uint64 // of peers, for which there was no room here
}

// Miss counts parts of operations that met memory which was not resident (clause 16).
type Miss struct {
	MissesWriteSource uint64 // by where they met it
	MissesWriteTarget uint64
	MissesReadTarget  uint64
	MissesReadDest    uint64
	MissesDropped     uint64 // of them left unreceived: there was no room to park them, or they are not to be
	MissesFailed      uint64 // ended their operation with StatusMemory
}

func (m *Miss) MissesAt(site regmem.Site) *uint64 {
	return [...]*uint64{&m.MissesWriteSource, &m.MissesWriteTarget, &m.MissesReadTarget, &m.MissesReadDest}[site]
}

// Life counts what began and ended.
type Life struct {
	ConnectionsOpened, ConnectionsClosed uint64
	SessionsOpened, SessionsFailed       uint64
	PathChanges                          uint64
	PathMoves                            uint64 // to other addresses of peers, over IP
	LaneDraws                            uint64 // of other ports for paths, by lanes of IP links
	MarksFailed                          uint64 // times that marks did not get through a path of an IP link
}

// Add adds what another endpoint counted.
func (c *Counters) Add(o *Counters) {
	to, from := reflect.ValueOf(c).Elem(), reflect.ValueOf(o).Elem()
	for i := range to.NumField() {
		for k := range to.Field(i).NumField() {
			n := to.Field(i).Field(k)
			n.SetUint(n.Uint() + from.Field(i).Field(k).Uint())
		}
	}
}

// Latency is how long operations of ours took, by kind: from the Submit that took one to the EvComplete that says OK,
// by the times that the endpoint was called with. They are plain words as Counters are, as many as OpsCompleted less
// OpsFailed.
type Latency struct {
	Write, Read, Atomic, Send hist.Histogram
	Miss                      hist.Histogram // from a miss until what met it goes on
	// of a page that missed: how long it waited for whoever makes it resident, and how long that took, as its owner
	// notes
	PinDelay, Pin hist.Histogram
}

// Add adds what another endpoint counted.
func (l *Latency) Add(o *Latency) {
	l.Write.Add(&o.Write)
	l.Read.Add(&o.Read)
	l.Atomic.Add(&o.Atomic)
	l.Miss.Add(&o.Miss)
	l.PinDelay.Add(&o.PinDelay)
	l.Pin.Add(&o.Pin)
	l.Send.Add(&o.Send)
}
