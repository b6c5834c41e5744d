// Package shard is the packet loop: it joins the pure engine to link drivers below and to the rings of clients above.
// It knows no processes, people, files or sockets: those are package daemon's, the control half, which asks a shard by
// its exported methods.
//
// # Threads
//
// A shard owns an engine, its drivers and the shared rings of its clients, and runs on one locked operating system
// thread. Nothing it owns is locked. There is one, or as many as the configuration says (daemon/shards.go): they share
// nothing on the packet path. Receivers (receiver.go) serve links that a shard lends them. Everybody else (a reader and
// a writer goroutine per client, the listener, the keeper of links, the metrics scrape) asks the shard to run a
// function through its mailbox, and waits; a reader reads on, and waits with the next request.
//
//	client process          control goroutines            shard thread                  wire
//	  SQ ring  ------------------------------------------>  drain, check, Submit
//	  CQ ring  <------------------------------------------  PollEvent            <-->  linkdrv
//	  socket   -------->    serve         ------ Do(f) -->  dial, export, close
//	           <--------    write, if the socket is full <- reply, event
//
// # One iteration
//
//  1. frames: every link's Recv (32 frames at most) -> engine.Handle
//  2. work: every client's submission ring (64 entries at most), each copied once, checked against that client's
//     regions -> engine.Submit
//  3. timers
//  4. engine.PollEvent -> completion rings and control messages
//  5. engine.PollTransmit -> per-link Send; what the kernel did not take stays with the link, which is reported blocked
//
// An iteration that found nothing to do consults the wait policy (waiting.go), which was measured, not guessed.
//
// # Isolation
//
// A client reaches its own regions, connections and services only. Its share of an iteration is bounded, what it may
// hold is bounded by config.Limits, and the ring words it can write are never trusted: indices are private, entries are
// copied before they are checked. A client that breaks the ring protocol is evicted; nobody else notices. When a client
// dies its connections are aborted and its memory is unmapped and unpinned as soon as no operation uses it.
package shard
