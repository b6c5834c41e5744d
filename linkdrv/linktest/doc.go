// Package linktest has drivers for tests and experiments: Pair makes the two ends of a link in memory, without
// privileges. They are good links: what bad ones do to frames (internal/fault) is done by the wires of labs
// (internal/lab) and by the simulator (internal/sim). What passes a daemon's links, edgectl trace shows.
package linktest
