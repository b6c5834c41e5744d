// Package daemon is processes and people: the control socket and who may connect to it, the control half of clients,
// quotas, the links that come and go, reload and drain. Frames and rings are package shard's.
//
// A client has a control connection: one goroutine serves its requests in order, another writes what the shard says.
// What a request changes belongs to the shard, which is asked by its exported methods; what may take long (mapping,
// pinning, opening drivers) is done here, so that no shard waits for it.
package daemon
