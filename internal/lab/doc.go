// Package lab builds whole networks on one machine: hosts are network namespaces, links are veth pairs, and what lies
// between two ends of a link is a medium that the caller chooses.
//
//	Cable    host0.edge0 ======================= host1.edge0      one veth pair, as fast as the machine
//	Switch   host0.edge0 === port [bridge] port === host1.edge0   a kernel bridge; tbf limits each port
//	Wire     host0.edge0 === port [ wire ] port === host1.edge0   a thread that loses, repeats, delays frames
//	Routed   host0.edge0 === port [router] port === host1.edge0   two networks: only IP passes
//
// All ports and bridges live in one further namespace. A queueing discipline there cannot be bypassed by the hosts,
// whose packet sockets skip the disciplines of their own interfaces (PACKET_QDISC_BYPASS).
//
// Interfaces are named edge0, edge1, ... in every host; interface k of host h has the address 10.77.k.(h+1)/24, or
// behind a router 10.(100+h).k.2/24, or fd77:h:k::2/64. IPv6 is otherwise off, so that no frame is on a link but those
// the hosts send.
//
// A frame belongs to its sender's socket until it has left the shaper, so a socket with a send buffer below the
// shaper's queue (1 MiB) is held back instead of losing frames, as by a card of that rate; one with a larger buffer
// overflows it. The shaper acts on what goes to a host: with more than two hosts nothing limits what one host sends to
// several.
//
// # Nothing is left behind
//
// Namespaces have no names: they live as long as this process holds their descriptors or a process or socket is inside.
// Processes are started through Host.Start, die with this process (also when it is killed with SIGKILL) and are killed
// by Close. What such a process started itself and put into another process group is out of reach.
//
// # Privileges
//
// Making a network takes CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_ADMIN. A program that calls EnsurePrivileges first
// thing in main gets them in a user namespace of its own when it was not started with them.
package lab
