// Package linkdrv moves batches of Ethernet frames between one network interface and its caller, without ever blocking
// and without allocating.
//
// There are three drivers of interfaces. Two send each frame on its own ("alone"), and which is better depends
// on the interface's MTU (measured, see docs/PERFORMANCE.md):
//
//   - ring: the kernel leaves received frames in a small memory-mapped TPACKET_V2 ring that stays in cache. Receiving
//     is a load
//     of one word per frame and no system call at all. Best above 2 KiB and for latency.
//   - mmsg: recvmmsg into buffers of the driver, up to 32 frames a call. Best at MTU 1500, where a copy is cheap and
//     the ring's bookkeeping in the kernel is not. With [Options.Pages] the buffers are a pool of pages, and frames
//     start where pages do, which is how the paper's NICs receive what is to be exchanged for an application's pages.
//
// The third, udp, is the default on virtual links. It receives through rings, and besides frames alone it takes and
// sends many of them as one UDP datagram of up to 64 KiB (PROTOCOL clause 12), which the interface or the kernel cuts
// up where the wire begins. What a frame costs in the kernel is paid once for many.
//
// A fourth, ip, is a UDP socket in place of an interface ([Options].Listen): its frames are datagrams that cross
// routers and need no privilege (PROTOCOL clause 21), and it is a [Sourcer].
//
// All send with sendmmsg, up to 64 frames a call, each gathered from up to three pieces, so that a payload goes from
// the application's memory to the kernel in one copy.
//
// # The driver loop
//
//	d, err := linkdrv.Open("eth0", linkdrv.Options{})
//	for {
//		n, err := d.Recv(frames[:])     // frames[:n] stay valid until the next Recv
//		...                             // process them, fill tx
//		k, err := d.Send(tx)            // k < len(tx) and err == nil: no room, keep tx[k:] for later
//		if n == 0 && nothing to do {
//			ppoll(d.FD())               // only after a Recv that returned 0: see [Driver.FD]
//		}
//	}
//
// A Driver belongs to one goroutine, normally one that is locked to its OS thread, or to two: one that receives and one
// that sends, see [Driver]. Open looks the interface up in the network namespace of the calling thread; afterwards the
// namespace of the thread does not matter.
//
// # System calls that bypass the scheduler
//
// The calls on the packet path are made with unix.RawSyscall6. They carry MSG_DONTWAIT, so they never wait; telling the
// Go scheduler about them would cost two atomic transitions a call and, worse, let its monitor take the processor away
// from a call that lasts over 20 microseconds, which a batch of frames does. The price: a garbage collection that wants
// to stop the world waits for the call to return. A call is therefore bounded to 64 frames and 1 MiB, a quarter of a
// millisecond.
//
// # The descriptor is kept out of Go's poller
//
// Sockets are opened by github.com/mdlayher/packet, which registers them with the runtime's epoll set. As soon as any
// goroutine of the process waits there (an HTTP listener for metrics is enough), every frame received and every sent
// one freed wakes a runtime thread that has nothing to do: one Send was measured at 6 to 8 microseconds instead of 1.2.
// Open therefore keeps a duplicate of the descriptor and closes the original, which takes the socket out of the set.
// What it costs is the library's Stats method, for which x/sys/unix makes the same call.
package linkdrv
