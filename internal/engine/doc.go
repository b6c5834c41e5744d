// Package engine is the transport as a pure state machine: no sockets, no clock, no goroutines (docs/PROTOCOL.md).
//
// A shell owns an Endpoint on one thread and drives it:
//
//	for {
//		now := mono.Now()
//		for each frame received on link i { e.Handle(now, i, Whole(frame)) }
//		for each request of an application { e.Submit(now, conn, &op); e.Dial(...); ... }
//		if now >= e.NextTimeout() { e.HandleTimeout(now) }
//		for e.PollTransmit(now, batch) > 0 { send batch.Frames; batch.Reset() }
//		for e.PollEvent(&ev) { tell the application }
//		wait for a frame, a request, or e.NextTimeout()
//	}
//
// Every call may change what PollTransmit, PollEvent and NextTimeout return next. The same calls with the same times
// and seed give the same frames.
//
// Where things are:
//
//	endpoint.go        the tables of all there is
//	discovery.go       peers: who is there; links.go: local links, and what peers are told of them
//	session.go         the channel to a peer; handshake.go, keys.go, supersede.go: what proves that it is the peer's
//	path.go            one way to a peer; pmtu.go: how long its frames are; cables.go: which links it joins
//	acks.go            when and what to acknowledge; acked.go: acknowledgement and loss
//	conn.go            what applications hold; dials.go: until it is open; adverts.go: exported memory by name
//	send.go, build.go, fill.go   frames out
//	recv.go, place.go  frames in; operations performed, in the order that fences allow
//	kinds.go           the table of kinds of operations; op_*.go: all that is one kind's alone
//	messages.go, receive.go   messages: sends that wait for a buffer; buffers that are posted
//	mover.go           where payloads go, and who moves them; scatter.go: the driver; arrival.go: other threads
//	peering, path, op, queue   packages below this one, which know nothing of it
package engine
