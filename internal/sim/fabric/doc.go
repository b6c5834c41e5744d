// Package fabric is a data centre in virtual time: hosts on a network of leaf and spine switches, with equal-cost paths
// that a hash of the flow chooses, buffers that mark and drop, and links that fail. Its hosts run the production engine
// (internal/engine) over sealed IP links, or a model of DCTCP to compare with.
//
//	net.go      Net: time, packets and who has them; Options
//	port.go     queues, switches, the way of a packet
//	agenda.go   the queue of events
//	flow.go     what is sent, and how long it takes at best
//	engine.go   hosts that run the engine; open.go: their sessions and connections; lanes.go: their ports
//	dctcp.go    hosts that run the model: its sender; dctcp_recv.go: its receiver, and its host
//
// One goroutine runs a Net, and a seed is a run. Hosts take no time to compute: what is measured is what networks and
// protocols do.
package fabric
