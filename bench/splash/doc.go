// Package splash has parallel programs on shared memory (package dsm), of the kinds of SPLASH-2: FFT, LU with
// contiguous and with other blocks, Radix, Ocean, Barnes, Water by all pairs and by cells. They are this project's own,
// and smaller than SPLASH-2's. The result of each is, bit for bit, that of its sequential run, on any number of ranks.
package splash
