package prefetch

//go:noescape
func one(p *byte, n int)

//go:noescape
func four(a, b, c, d *byte, n int)

//go:noescape
func load(p *byte, n int)

// vendor returns EBX, the beginning of the vendor's name.
func vendor() uint32

// amd is set for "AuthenticAMD" and "HygonGenuine".
var amd = vendor() == 'A'|'u'<<8|'t'<<16|'h'<<24 || vendor() == 'H'|'y'<<8|'g'<<16|'o'<<24
