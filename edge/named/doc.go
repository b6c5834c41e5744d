// Package named exports memory under a name before there is any connection (VMMC §3.1), to any number of importers,
// also on the same host, with rights by node, user and group. The export outlives a restart of the daemon
// (Memory.Region).
//
//	table, err := named.Export(ctx, dev, r, "table", edge.RemoteRead, "node-b", "node-c") // no names: every peer
//	remote, err := named.Import(ctx, dev, "node-a", "table")                             // at node-b
package named
