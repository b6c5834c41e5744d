// Package faults is the fault instrument: it does to real daemons and real clients in lab hosts what networks, hosts
// and adversaries do, and judges what becomes of the work they have in hand.
//
// A Scenario builds a Scene (a kit.Cluster, a server and clients), injects its fault while clients move data, counts,
// and is judged by its own criteria and by the five that hold for every one:
//
//	U1  target memory equals an oracle; canaries around every region are untouched
//	U2  every operation completes exactly once, with success or a typed error, by its deadline; nothing lands later
//	U3  afterwards goroutines, descriptors, pinned bytes, regions and connections are back where they started
//	U4  the number of faults injected is not zero and agrees with what was counted
//	U5  no panic, every process alive that was not killed
//
// The process that runs the scenarios (run.go, scene.go) talks to the processes in the hosts (protocol.go, server.go,
// client.go) by lines of JSON. The oracle is a client's copy of the memory it writes (oracle.go): it goes
// to the server through a file when a connection's life is over, so that no faulty network can make both ends agree.
//
// Pure judging is in judge.go. soak.go mixes the faults for hours.
//
// A scenario has no errors to hand on: what goes wrong with its Trial ends it there and then (kit.Check), and the row
// says what was being done. proof_test.go puts faults into the harness's own way, a lost write, one applied twice, a
// wrong byte, an injector that injected nothing, and expects each of them to be reported.
package faults
