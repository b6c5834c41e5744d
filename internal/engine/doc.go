// Package engine is the transport as a pure state machine: no sockets, no clock, no goroutines (docs/PROTOCOL.md).
//
// A shell owns an Endpoint on one thread and drives it:
//
//	for {
//		now := mono.Now()
//		for each frame received on link i { e.HandleFrame(now, i, frame) } // or, looked at elsewhere, HandleArrival (arrival.go)
//		for each request of an application { e.Submit(now, conn, &op); e.Dial(...); ... }
//		if now >= e.NextTimeout() { e.HandleTimeout(now) }
//		for e.PollTransmit(now, batch) > 0 { send batch.Frames; batch.Reset() }
//		for e.PollEvent(&ev) { tell the application }
//		wait for a frame, a request, or e.NextTimeout()
//	}
//
// Every call may change what PollTransmit, PollEvent and NextTimeout return next. The same calls with the same times and seed give the same frames.
//
// Where things are: endpoint.go the tables; discovery.go who is there; session.go the channel to a peer; path.go one way to it; size.go how long frames are there; conn.go what
// applications hold; send.go, build.go and fill.go frames out; recv.go frames in; acked.go what became of ours; place.go operations put in place, in the order that fences allow.
package engine
