// Package workload runs the benchmarks over the edge API: the paper's one-way, two-way and ping-pong (§3.1), read, and
// the rate of small operations.
//
// # Who does what
//
// The server offers the service "edgebench". A client dials it and says in the dial's private data which memory the
// series needs (Params). Both register regions, exclusive of their guard pages export them to each other, and exchange
// small JSON messages through a control region (channel.go). For each measurement:
//
//	client                                server
//	run{Spec} ------------------------->  prepares memory, reads its counters
//	          <-------------------------  ready
//	reads its counters; go ------------>  begins as well, if it sends
//	messages, see the test's file
//	end (fenced behind all messages) -->  has everything: stops its clock
//	          <-------------------------  end acknowledged: the client's clock stops
//	          <-------------------------  done{Report}
//
// In two-way both sides send and both sides end. Both begin at the client's go: while one sends alone, the sum of both
// directions is another. Writes carry their payload only; with integrity checking each also notifies, so that the
// receiver verifies every message where it landed and gives back the slot (credit).
//
// # Several connections
//
// A series may have further connections (lanes.go): the client dials each with the number of the series, both ends
// export the same regions on it, and senders use them by turns. Control messages, ends and credit stay on the first.
//
// # Byte streams
//
// A run of byte streams (bytestream.go) has the same run, ready and done. The server's ready names a service, made for
// this run, that the client dials streams to; the end and its confirmation travel on them, as TCP's do, and what the
// program writes and reads is memory that is not registered.
//
// # Notifications
//
// The 32 bits of a notification hold a kind in the upper four and a value below, see channel.go.
package workload
