// Package remap spares the receiver the copy of large transfers by exchanging pages (paper 2.3.2).
//
// It decides how the payload of a large transfer is cut into frames and laid out in them, so that whole pages arrive as
// whole pages ("Splitting large messages" and "Dealing with packet headers", figure 2.4). Every frame must carry data
// up to a page boundary of the destination: NextLen. And the data must begin where a page of the receive
// buffer begins, which is where the header is: SendOrder and Unshuffle put the first payload bytes behind the rest and
// back over the header.
//
// An Exchanger receives runs of pages into a pool and exchanges them for the pages of the destination, whose old ones
// become buffers ("Page remapping", "Replenishing kernel buffers"). A Shared is memory in which that can be done.
//
// Everything here is pure but the files for linux, which map memory. Lengths and offsets are bytes.
package remap
