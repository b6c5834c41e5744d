// Package linktest has drivers for tests and experiments, which stack like devices:
//
//	Pair    two ends of a link in memory, without privileges
//	Fault   loses, duplicates, corrupts and reorders what is sent through it, reproducibly, and counts what it did
//	Tap     writes every frame to a pcap file
//
// So linktest.Tap(faulty, file), with faulty around one end of a Pair or around a real driver, is a driver again.
package linktest
