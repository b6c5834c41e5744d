package prefetch

//go:noescape
func one(p *byte, n int)

//go:noescape
func four(a, b, c, d *byte, n int)
