// Package engine is the transport as a pure state machine: no sockets, no clock, no goroutines (docs/PROTOCOL.md).
//
// A shell owns an Endpoint on one thread and drives it:
//
//	for {
//		now := mono.Now()
//		for each frame received on link i { e.Handle(now, i, Whole(frame)) }
//		for each request of an application { e.Submit(now, conn, &op); e.Dial(...); ... }
//		if now >= e.NextTimeout() { e.HandleTimeout(now) }
//		for e.PollTransmit(now, batch) > 0 { send each link's batch.Frames; batch.Reset() }
//		for e.PollEvent(&ev) { tell the application }
//		wait for a frame, a request, or e.NextTimeout()
//	}
//
// Every call may change what PollTransmit, PollEvent and NextTimeout return next. The same calls with the same times
// and seed give the same frames.
//
// Where things are:
//
//	endpoint.go          what there is, and how it is joined; verbs.go, nodes.go, types.go: what owners call and name
//	send.go, build.go    frames out; acks.go: where acknowledgements leave; batch.go: what frames are given in
//	recv.go, arrival.go, scatter.go   frames in: whole, examined on other threads, received in place
//
// and in the packages below, which do not know of this one:
//
//	peering   who the peers are: discovery, handshakes, sessions, keys
//	path      one way to a peer: probes, MTU, acknowledgement and loss
//	op        connections and their operations
//	build     the content of a frame, and records of it
//	count     what is counted
package engine
