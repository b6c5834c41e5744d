package stream

import (
	"context"
	"net"
)

// Reset ends the stream at once in both directions, without an orderly end: at the peer, reading and writing fail with
// edge.ErrReset, as after the death of this process. Use it if the peer must not take the bytes written so far for
// everything. Calls under way end with net.ErrClosed.
func (s *Conn) Reset() error {
	if s.closed.Swap(true) {
		return s.fault("reset", net.ErrClosed)
	}
	s.interrupt()
	ctx, cancel := context.WithTimeout(context.Background(), s.linger)
	defer cancel()
	s.release(ctx)
	return nil
}
