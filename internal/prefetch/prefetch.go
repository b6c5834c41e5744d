// Package prefetch has the processor fetch memory into its caches while the program goes on.
//
// Before the kernel copies a payload (One, Four): it does so with one instruction that follows one page at a time, and
// memory that no cache holds comes faster when several pages are asked for at once. That reads nothing, so it does not
// matter whether the memory is still there. Processors of AMD need none of it: fetched payloads leave slower there, be
// they in a cache or not. Before a payload is summed (Load): there only these gain.
//
// On processors without assembly here the functions do nothing.
package prefetch

// One fetches b for the kernel.
func One(b []byte) {
	if !amd && len(b) > 0 {
		one(&b[0], len(b))
	}
}

// Four fetches four stretches of memory for the kernel, a line of each in turn, as far as the shortest of them reaches.
func Four(a, b, c, d []byte) {
	if n := min(len(a), len(b), len(c), len(d)); !amd && n > 0 {
		four(&a[0], &b[0], &c[0], &d[0], n)
	}
}

// Load reads b, of which no byte matters, and asks for what lies a page further on, where the next payload is likely to
// be: requests that come faster than memory answers are passed over, what is read is not. On processors of others than
// AMD it does nothing.
func Load(b []byte) {
	if amd && len(b) > 0 {
		load(&b[0], len(b))
	}
}
