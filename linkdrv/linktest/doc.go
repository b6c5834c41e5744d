// Package linktest has drivers for tests and experiments, which stack like devices:
//
//	Pair    two ends of a link in memory, without privileges
//	Fault   loses, duplicates, corrupts and reorders what is sent through it, reproducibly, and counts what it did
//
// So a Fault around one end of a Pair or around a real driver is a driver again. What passes a daemon's links, edgectl
// trace shows.
package linktest
