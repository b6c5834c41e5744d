//go:build ctest

package drive

import "testing"

// Streams one after the other on one connection, and peers that do not follow its rules.
func TestStreamsRest(t *testing.T) {
	a, _ := hosts(t)
	startProgram(t, "rest", a.cfg.Socket, "rest").ends()
}

// A child that is forked while a thread wakes the daemon has not got the doorbell.
func TestForkedBell(t *testing.T) {
	a, _ := hosts(t)
	startProgram(t, "bell", a.cfg.Socket, "bell").ends()
}
