// Package abi is the register of what programs, daemons and peers name by number: operations and their flags, statuses,
// codes of errors, requests and events, completions, features, functions of atomics, permissions and limits. Each
// stands here once, with its word and its clause ("A6.6" of docs/ABI.md, "clause 6.10" of docs/PROTOCOL.md).
//
// Go code uses these types and constants. For C, for the tables of both documents, and for the names that packages ipc
// and engine pass on, "go generate ./internal/abi" writes what package generate lists; its test fails when something
// is stale.
package abi

//go:generate go run ./generate
