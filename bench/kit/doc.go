// Package kit is what all programs of bench build on: hosts of a lab with a daemon in each (Cluster), processes of the
// calling program in those hosts (Process, at the other end Port), studies between two hosts (Study), and errors that
// end a whole piece of work by themselves (Try, Check).
//
// A program runs itself in the hosts, so that no other program has to be found: its main function, and TestMain of
// tests, calls Inside first, which runs a hidden subcommand if the arguments name one.
package kit
