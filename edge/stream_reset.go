package edge

import (
	"context"
	"net"
)

// Reset ends the stream at once in both directions without saying that it ends: at the peer, reading and writing fail
// with ErrReset, as after the death of this process. Use it where the bytes that were written are not all there was to
// say. Calls under way end with net.ErrClosed.
func (s *Stream) Reset() error {
	if s.closed.Swap(true) {
		return s.fault("reset", net.ErrClosed)
	}
	s.interrupt()
	ctx, cancel := context.WithTimeout(context.Background(), s.linger)
	defer cancel()
	s.release(ctx)
	return nil
}
