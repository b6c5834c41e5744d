// Package flowctl is flow control of one path between two nodes, as pure state: no sockets, no clock, no goroutines.
//
// A path numbers its frames from 0 and never reuses a number; a retransmission is a new frame with a new number. The
// receive side keeps a Tracker (what arrived) and an AckPolicy (when to speak); the send side keeps a Ledger (what is
// in flight and what was lost), an RTT and a Controller. They meet in a Block, the acknowledgement of one path:
//
//	receiving a frame                               sending a frame
//	  t.Check(pn) == New, authenticate, accept        c.Allows(frames in flight, now) && l.CanSend()
//	  gap, _ := t.Commit(pn, now)                     pn := l.Record(now, bytes, tag, eliciting)
//	  p.OnFrame(now, eliciting, gap)
//	                                                receiving a Block
//	sending a Block when p.Due(now), or riding        acked, lost, res = l.OnAck(now, &b, &rtt, acked[:0], lost[:0])
//	on a data frame when p.WantPiggyback() or Due     c.OnAck(now, len(acked), &rtt); c.OnLoss(now, len(lost))
//	  floor, bits := t.AckBits(buf[:0], MaxAckWords)
//	  p.OnSent()                                    at l.Deadline(), after every frame that waited was handled
//	                                                  lost, probe = l.OnTimeout(now, &rtt, lost[:0])
//
// Nothing here allocates after construction, but for a Ledger that doubles its room, and nothing locks: one thread owns
// a path. Sets of packet numbers are bitmaps handled a 64-bit word at a time, so that a frame costs a few nanoseconds
// and an acknowledgement costs what it newly says.
//
// The paper is MultiEdge; its flow control is section 2.1.2. What it leaves open follows RFC 6298 and 9002 (round
// trips, probes), RFC 8985 (loss by time) and Swift (SIGCOMM 2020; congestion by delay).
package flowctl
