// Package remap decides how the payload of a large transfer is cut into frames and laid out in them, so that whole pages arrive as whole
// pages (paper 2.3.2, "Splitting large messages" and "Dealing with packet headers", figure 2.4).
//
// Two things are needed before a received page can become a page of the destination. Every frame must carry data up to a page boundary
// of the destination: NextLen and Plan. And the data must begin where a page of the receive buffer begins, which is where the header
// is: SendOrder and Unshuffle put the first payload bytes behind the rest and back over the header.
//
// Everything here is pure. Lengths and offsets are bytes.
package remap
