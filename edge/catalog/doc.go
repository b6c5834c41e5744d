// Package catalog exports memory under as many names as a program likes, and imports it by name when it is used.
//
//	cat, err := catalog.Serve(ctx, dev, "store", func(peer, name string) (edge.Piece, edge.Perm, error) {
//		o := objects[name]
//		return edge.Piece{Region: o.region, Off: o.off, Len: o.len}, edge.RemoteRead, nil
//	})
//	imp, err := catalog.Open(ctx, dev, "node-a", "store", 1024) // at node-b: at most 1024 names at once
//	remote, err := imp.Import(ctx, "object 17")
package catalog
