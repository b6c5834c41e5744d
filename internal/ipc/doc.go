// Package ipc is what a client process and the daemon say to each other.
//
// Two channels join them. The control socket (Unix SEQPACKET, peer credentials checked) carries one Message per packet,
// a little-endian struct, with descriptors where a reply hands over memory. The rings, in one sealed memfd the daemon
// makes, carry operations (SQE) towards the daemon and completions and notifications (CQE) towards the client, without
// a system call while both sides are awake. docs/ABI.md has every byte of both, for clients in other languages and of
// other releases: kind.go and structs.go have the same in code, and hello negotiates (greeting.go).
//
// Neither side trusts what the other writes in the shared pages. Each end of a ring keeps its own index privately,
// reads the other's index by one atomic load per drain, rejects an index further ahead than the ring is long, copies
// each descriptor once into private memory and validates the copy. A hostile peer therefore obtains an error at the
// other end, never an out-of-range access.
//
// Sleeping: a side that is about to block sets its sleep word and looks at its ring once more; a side that publishes
// entries afterwards looks at the other's sleep word, and takes it (so one doorbell is rung per sleep) when it is set.
// Go's atomics are sequentially consistent, so one of the two always sees the other.
//
// Pulse: a word that the daemon counts up while it runs, several times a second when busy and once a second when idle.
// A socket that is open says only that the process exists.
package ipc
