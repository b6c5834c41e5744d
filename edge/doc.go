// Package edge gives programs remote direct memory access over plain Ethernet: reads and writes of another host's
// memory that involve no code of its application, over as many links at once as the two hosts share.
//
// # Model
//
// A Device is an attachment to the transport: to the daemon edged, which many processes share, or to one embedded in
// this process (Config.Embedded). Memory for operations is registered with it: a Region is pinned and shared with the
// transport, so that data moves without further copies. A Conn joins two applications, found by node and service name.
// One side exports part of a Region on a Conn under a name; the other imports it and obtains a RemoteRegion, the target
// of its operations:
//
//	server                                              client
//	l, _ := dev.Listen(ctx, "store")
//	c, _ := l.Accept(ctx)                               c, _ := dev.Dial(ctx, "server", "store")
//	r, _ := dev.Register(1 << 20)                       local, _ := dev.Register(4096)
//	r.Export(c, "table", edge.RemoteWrite, 0, r.Len())  table, _ := c.Import(ctx, "table")
//	                                                    op, _ := c.Post(ctx, &edge.Work{Kind: edge.Write, Len: 4096,
//	                                                        Local: local, Remote: table, Flags: edge.Notify, Imm: 7})
//	n, _ := c.WaitNotify(ctx)                           err := op.Wait(ctx)
//
// # Operations
//
// Post starts operations as soon as there is room for them, and returns an Op: a value to ask (Done, Err) or to wait
// for (Wait). An operation that is done without error has taken effect in the remote memory. Until it is done, do not
// change the local memory of a write, and do not touch that of a read. Nothing has to be released, and an Op may be
// dropped. Posting, waiting and polling allocate nothing.
//
// Operations of a connection may take effect in any order: they travel over several links. Where order matters, say so:
// a BackwardFence operation takes effect after all earlier ones, later operations take effect after one with a
// ForwardFence, and Ordered at Dial puts everything in order. A write with Notify tells the owner of the remote memory
// once every byte of it is in place; a notification says nothing of other writes unless a fence does.
//
// RemoteRegion is also an io.ReaderAt and io.WriterAt for ordinary memory and any size, through registered memory that
// the Device keeps for it. That costs a copy.
//
// # Messages
//
// A Send goes into the oldest buffer that the peer posted with Receive; the CompletionQueue that a Work names tells how
// it ended, for any number of connections. ReceiveQueue shares buffers between connections. The examples of Conn.Post
// and ReceiveQueue are programs that run.
//
// # Packages above
//
// Package stream has net.Conn and net.Listener, named memory that is exported before there is a connection, catalog
// very many names, space more memory than may be pinned, heap memory that the program has already, atomics atomic
// operations, events event queues of exports, compose messages that travel while they are composed, redirect data that
// is put elsewhere as it arrives, dsm memory that several processes share, node the status and the keys of the node,
// and fabric hosts in memory, for tests. Directory examples has programs.
//
// # Waiting
//
// Any number of goroutines may use a Device and wait on it. One of them at a time looks for completions on behalf of
// all. It polls for a moment, letting others have the core, and then blocks, because waking up costs some 30
// microseconds; Config.Wait chooses otherwise. Op.Wait waits for one operation, and CompletionQueue.Wait for whatever
// of many operations and notifications comes first; an event loop of your own can wait for the descriptor of PollFD.
//
// # Errors
//
// Errors are values: errors.Is(err, edge.ErrPeerDown). Their text says what to do next. If an operation is refused for
// its key, bounds or permission, only that operation fails; the connection lives. When a connection ends, everything in
// flight on it fails. When the daemon goes away, everything on the Device fails with ErrDaemonDown and nothing hangs. A
// failed operation may have changed the remote memory, except after ErrKey, ErrPermission and ErrBounds.
//
// # When the daemon is restarted
//
// The Device attaches to the new daemon by itself and says so (Config.Log, Config.OnChange). Listeners go on: their
// services are offered again. Connections have ended: dial again. Dial, Listen and Register try to attach at once.
// Registered memory was made and pinned by the old daemon. Its bytes stay readable and writable until Close, but
// operations need Region.Renew, which registers as much memory anew and copies the bytes.
package edge
