package engine

import "multiedge/internal/hist"

// Counters are plain words of one endpoint or link; the owner's thread alone writes them. All count from the start of the endpoint.
type Counters struct {
	FramesSent, FramesReceived           uint64 // Ethernet frames of this protocol
	BytesSent, BytesReceived             uint64 // of those frames, Ethernet header included
	PayloadSent, PayloadReceived         uint64 // bytes of operations; sent counts retransmissions too
	DataFramesSent, DataFramesReceived   uint64 // eliciting frames
	AcksExplicit                         uint64 // frames sent only to acknowledge
	NacksSent                            uint64 // acknowledgement blocks that name a gap
	FramesRetransmitted                  uint64 // frames that carry something sent before
	FramesLost                           uint64 // frames judged lost, not counting probes of frame size and of dead paths
	SpuriousLosses                       uint64 // judged lost, acknowledged later; probes of frame size too
	TailProbes                           uint64 // probe timeouts of paths in use
	FramesDuplicated                     uint64 // received with a packet number seen before
	FramesReordered                      uint64 // received behind a later one of the same path
	SegmentsDuplicated                   uint64 // parts of operations that were in place already
	FramesFromReaders                    uint64 // that a Reader looked at first
	FramesInPlace                        uint64 // payloads that the driver received where they belong: no copy was needed
	FramesExchanged                      uint64 // payloads received into pages that were then exchanged for their place's: no copy was needed
	Exchanges, BytesExchanged            uint64 // runs of pages exchanged, bytes in them
	BytesUnexchanged                     uint64 // bytes received for an exchange that did not come about, and copied
	RejectedMalformed                    uint64
	RejectedHeaderSum                    uint64
	RejectedPayloadSum                   uint64
	RejectedVersion                      uint64
	RejectedNoRoom                       uint64 // left unreceived because nothing could hold them
	RejectedAuth                         uint64 // sealed frames that no key opens, and plaintext where only sealed frames may come
	RejectedCookie                       uint64 // Init without a good cookie; most are the first of an honest peer
	HandshakesFailed                     uint64 // given up, or ended by an error
	StrangersRefused                     uint64 // peers that proved a key which is not authorised here
	IdentityClaims                       uint64 // Hellos of other hosts with this node's identity
	UnknownSession                       uint64
	SegmentsHeld                         uint64 // parts of operations that waited behind a fence
	OpsSubmitted, OpsCompleted           uint64
	OpsFailed                            uint64 // completed with another status than success
	OpsApplied                           uint64 // operations of peers applied here
	AccessRefused                        uint64 // negative answers sent for bad keys, permissions, bounds
	GuessesIgnored                       uint64 // operations with wrong keys that got no answer, because there were too many of them
	Notifications                        uint64
	ConnectionsOpened, ConnectionsClosed uint64
	SessionsOpened, SessionsFailed       uint64
	PathChanges                          uint64
}

// Latency is how long operations of ours took, by kind: from the Submit that took one to the EvComplete that says OK, by the times that the endpoint was
// called with. They are plain words as Counters are, as many as OpsCompleted less OpsFailed.
type Latency struct {
	Write, Read hist.Histogram
}

func (l *Latency) of(k OpKind) *hist.Histogram {
	if k == OpRead {
		return &l.Read
	}
	return &l.Write
}

// Add adds what another endpoint counted.
func (l *Latency) Add(o *Latency) {
	l.Write.Add(&o.Write)
	l.Read.Add(&o.Read)
}
