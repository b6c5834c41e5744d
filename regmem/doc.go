// Package regmem is registered memory: what may be reached by one-sided operations, by whom, and how it is kept in
// place.
//
// The names follow VMMC's export and import. An application registers memory (a Region); exporting a range of it to one
// connection is a Grant, which yields a Key; the peer that was told the Key names it in every access. Grants are per
// connection, per permission and per range, and end when they are revoked.
//
//	region := &Region{ID: 1, Mem: mem}                                // mem, err := Alloc(size)
//	key, err := table.Grant(region, conn, RemoteWrite, off, n)        // once, at set-up
//	at, err := table.Resolve(key, conn, RemoteWrite, off, len(bulk)) // every frame
//	copy(dst, bulk)                                                   // straight to its final place
//
// Memory is pinned once, at registration (paper 2.3.1: communication shows locality, and registering is rarer than
// reading and writing). The paper's protocol page table, which maps registered pages for the packet path, is Table
// here: the shared mapping does the translation, so that what remains per frame is whether the access is allowed.
//
// The package has two halves. Tables, keys and quotas are pure: no system call, no clock, the same result for the same
// input. Memory is obtained, locked and mapped in files named _linux.
package regmem
