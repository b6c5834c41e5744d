//go:build ctest

package drive

import "testing"

// couriers has a daemon take grants of memory where it is (ABI A7.19).
func (h *host) couriers(n int) {
	h.stop()
	h.cfg.Limits.Couriers = n
	h.start()
}

// Memory that is granted where it is: what it serves for, what it is refused for, and not at all by default.
func TestGrants(t *testing.T) {
	a, _ := hosts(t)
	startProgram(t, "grant", a.cfg.Socket, "denied").ends()
	a.couriers(64)
	startProgram(t, "grant", a.cfg.Socket, "grants").ends()
}

// When edge_device_close has returned, no courier writes to memory that was granted.
func TestGrantsClose(t *testing.T) {
	a, b := hosts(t)
	b.couriers(64)
	for range 5 {
		owner := startProgram(t, "grant", b.cfg.Socket, "closes", "mem")
		owner.says("ready")
		peer := startProgram(t, "grant", a.cfg.Socket, "writes", "b", "mem")
		owner.says("closed")
		peer.ends()
		owner.in.Write([]byte("\n"))
		owner.ends()
	}
}

// A grant is made anew with the next daemon.
func TestGrantsRenewed(t *testing.T) {
	a, _ := hosts(t)
	a.couriers(64)
	r := startProgram(t, "grant", a.cfg.Socket, "renews")
	r.says("ready")
	a.stop()
	r.says("lost")
	a.start()
	r.in.Write([]byte("\n"))
	r.ends()
}
