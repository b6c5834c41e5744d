package main

import (
	"cmp"
	"slices"
	"strings"

	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
)

type exportCmd struct{}

// namedMemory begins the service that memory exported by name is (package named).
const namedMemory = "memory/"

// exported is memory that a program exports on a connection, or by a name that nobody has imported.
type exported struct {
	Name     string `json:"name,omitempty"` // of memory exported by name
	Service  string `json:"service"`
	PID      int32  `json:"pid"`
	Program  string `json:"program"`
	Peer     string `json:"peer,omitempty"` // empty: nobody yet
	Conn     uint32 `json:"connection,omitempty"`
	Exports  int    `json:"exports"`          // on the connection
	Rights   string `json:"rights,omitempty"` // of the oldest of them
	Bytes    uint64 `json:"bytes,omitempty"`  // its
	Received uint64 `json:"bytes_received"`   // on the connection
	Sent     uint64 `json:"bytes_sent"`       // likewise
}

func (*exportCmd) Run(g *globals) error {
	conns, err := get[[]inspect.ConnStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "conn"})
	if err != nil {
		return err
	}
	clients, err := get[[]inspect.ClientStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "client"})
	if err != nil {
		return err
	}
	list := exportsOf(conns, clients)
	if g.JSON {
		return printJSON(g, list)
	}
	var rows [][]any
	for _, e := range list {
		rows = append(rows, []any{cmp.Or(e.Name, "-"), cmp.Or(e.Service, "-"), e.PID, e.Program, cmp.Or(e.Peer, "-"),
			e.Exports, cmp.Or(e.Rights, "-"), bytesText(e.Bytes), bytesText(e.Received), bytesText(e.Sent)})
	}
	return table(g.out, "NAME SERVICE PID PROGRAM PEER EXPORTS RIGHTS SIZE RECEIVED SENT", rows)
}

// exportsOf lists connections with exports, and the names that are exported and not imported; by name, program, peer.
func exportsOf(conns []inspect.ConnStatus, clients []inspect.ClientStatus) []exported {
	list := []exported{}
	type offer struct {
		pid     int32
		service string
	}
	imported := map[offer]bool{}
	offered := map[offer]bool{}
	for _, c := range clients {
		for _, s := range c.Services {
			offered[offer{c.PID, s}] = true
		}
	}
	for _, c := range conns {
		if c.Exports == 0 {
			continue
		}
		e := exported{Service: c.Service, PID: c.PID, Program: c.Program, Peer: c.Peer, Conn: c.ID, Exports: c.Exports,
			Rights: c.ExportRights, Bytes: c.ExportBytes, Received: c.BytesIn, Sent: c.BytesOut}
		if at := (offer{c.PID, c.Service}); offered[at] { // not of one that it imported
			if name, named := strings.CutPrefix(c.Service, namedMemory); named {
				e.Name = name
			}
			imported[at] = true
		}
		list = append(list, e)
	}
	for _, c := range clients {
		for _, s := range c.Services {
			if name, ok := strings.CutPrefix(s, namedMemory); ok && !imported[offer{c.PID, s}] {
				list = append(list, exported{Name: name, Service: s, PID: c.PID, Program: c.Program})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b exported) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Peer, b.Peer),
			cmp.Compare(a.Conn, b.Conn))
	})
	return list
}
