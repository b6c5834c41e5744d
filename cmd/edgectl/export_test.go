package main

import (
	"slices"
	"testing"

	"multiedge/internal/inspect"
)

// What is exported is listed with whom it is exported by and to, also what nobody has imported yet; what a program has
// imported is not.
func TestExportsOf(t *testing.T) {
	clients := []inspect.ClientStatus{
		{PID: 1, Program: "store", Services: []string{"memory/table", "memory/idle", "kv"}},
		{PID: 2, Program: "reader"},
	}
	conns := []inspect.ConnStatus{
		{ID: 7, PID: 1, Program: "store", Peer: "c", Service: "memory/table", Exports: 1, ExportRights: "read",
			ExportBytes: 4096, BytesOut: 100},
		{ID: 6, PID: 1, Program: "store", Peer: "b", Service: "memory/table", Exports: 1, ExportRights: "read+write",
			ExportBytes: 4096, BytesIn: 50},
		{ID: 8, PID: 1, Program: "store", Peer: "b", Service: "kv", Exports: 3, ExportRights: "write"},
		{ID: 9, PID: 2, Program: "reader", Peer: "b", Service: "memory/table"},              // imports
		{ID: 10, PID: 2, Program: "reader", Peer: "b", Service: "memory/other", Exports: 1}, // imports, and exports
	}
	want := []exported{
		{Service: "kv", PID: 1, Program: "store", Peer: "b", Conn: 8, Exports: 3, Rights: "write"},
		{Service: "memory/other", PID: 2, Program: "reader", Peer: "b", Conn: 10, Exports: 1},
		{Name: "idle", Service: "memory/idle", PID: 1, Program: "store"},
		{Name: "table", Service: "memory/table", PID: 1, Program: "store", Peer: "b", Conn: 6, Exports: 1,
			Rights: "read+write", Bytes: 4096, Received: 50},
		{Name: "table", Service: "memory/table", PID: 1, Program: "store", Peer: "c", Conn: 7, Exports: 1,
			Rights: "read", Bytes: 4096, Sent: 100},
	}
	if got := exportsOf(conns, clients); !slices.Equal(got, want) {
		t.Errorf("listed\n%+v, want\n%+v", got, want)
	}
}
