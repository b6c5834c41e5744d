// Package hostile is a client of the daemon that misbehaves in a chosen way, as fast as it can. It speaks the protocol
// by hand, over package ipc, so that it can do what package edge never would. Tests and fault scenarios run it beside
// honest clients, whose operations must go on as before.
package hostile
