//go:build ctest

package drive

import "testing"

// Memory shared with a domain, between two C clients: reached by its key on connections of the domain, and on no other.
func TestDomain(t *testing.T) {
	a, b := hosts(t)
	owner := startProgram(t, "domain", b.cfg.Socket, "give", "desk")
	owner.says("ready")
	startProgram(t, "domain", a.cfg.Socket, "take", "b", "desk").ends()
	owner.ends()
}
