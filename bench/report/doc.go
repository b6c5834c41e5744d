// Package report holds what a benchmark found and says it: the result model (versioned JSON), the latency recorder, and
// the writers for people (perftest-like text, table) and for programs (JSON, JSON lines, CSV).
//
// Nothing here measures; rows arrive complete. Writers get them one at a time, so that a long run shows each as it
// ends.
//
// # The JSON format
//
// A result file is one object:
//
//	format   "edgebench"
//	version  1; a reader refuses a version it does not know
//	created, command, machine, lab, notes    where the numbers come from
//	results  one object for each measurement, see Row
//
// Fields are only ever added within a version. Units are in the names: _bytes, _seconds, _ns, _per_second. In the JSON
// lines format each line is a row that also carries format and version; a first line may carry the head (machine, lab,
// notes) under "head".
package report
