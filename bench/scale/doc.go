// Package scale opens as many connections between two nodes as are asked for, runs an operation on each, opens and
// closes some more in cycles, and tells what that costs: memory per connection in both daemons and both applications,
// the rate, and whether everything is given back.
package scale
