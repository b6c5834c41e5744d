// Package fairness studies how IP links share long lines with TCP, and what they have of lines alone, in simulation
// (internal/sim/line): the windows that a link chooses by itself beside one TCP flow with CUBIC, over round trips,
// buffers and lanes, and on a line that a policer limits; alone on a fast long line; and on one that loses packets.
//
//	lines.go   what is simulated
//	study.go   tables, figures, goals
package fairness
