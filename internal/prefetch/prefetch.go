// Package prefetch has the processor fetch memory into its caches while the program goes on.
//
// The kernel copies a payload from the application's memory with one instruction that follows one page at a time.
// Memory that no cache holds comes faster when several pages are asked for at once, and for nothing while a thread
// works on something else. One and Four read nothing, so it does not matter to them whether the memory is still there.
// On processors without assembly here the functions do nothing.
package prefetch

// One fetches b.
func One(b []byte) {
	if len(b) > 0 {
		one(&b[0], len(b))
	}
}

// Four fetches four stretches of memory, a line of each in turn, as far as the shortest of them reaches.
func Four(a, b, c, d []byte) {
	if n := min(len(a), len(b), len(c), len(d)); n > 0 {
		four(&a[0], &b[0], &c[0], &d[0], n)
	}
}

// Load reads b, of which no byte matters, and asks for what lies a page further on, where the next payload is likely to
// be. Processors of AMD pass over requests that come faster than memory answers, which is most of those of Four; they
// do not pass over what is read. On others Load does nothing and returns false.
func Load(b []byte) bool {
	if loads && len(b) > 0 {
		load(&b[0], len(b))
	}
	return loads
}
