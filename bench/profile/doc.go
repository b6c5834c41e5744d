// Package profile tells what processor time of chosen processes went to, in the paper's labels (§3.1).
//
// The kernel samples what every processor does, about a thousand times a second (perf_event_open, a software clock: no
// hardware counters are needed). A sample names a process and where it was: in the kernel, with the functions that led
// there, or in the program. Kernel functions are looked up in /proc/kallsyms, those of the program in this program
// itself: daemons and benchmark processes of a lab run the same executable. Rules (classify.go) turn the place into a
// label.
//
// It takes CAP_PERFMON or root, and sees the whole machine. Where that is refused, there is no breakdown, only what the
// kernel accounts for each process.
package profile
