package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"multiedge/edge"
)

// How many bytes each buffer of a stream has, if Config does not say: EarlyBuffer where the Device has fewer than
// EarlyStreams other connections, requests included, and the memory can be registered; else DefaultBuffer. With larger
// ones, program and daemon give the processor to each other less often; few of them take little memory.
const (
	DefaultBuffer = 512 << 10
	EarlyBuffer   = 2 << 20
	EarlyStreams  = 4
)

// maxData is the most private data of a dial, in bytes.
const maxData = 504

// Config says how a stream is made. The zero value is valid; Dial and Listen use it.
type Config struct {
	Device *edge.Device // nil: the one of edge.Dial and edge.Listen, attached to the local daemon

	// registered memory that each stream pins at this end, in bytes: powers of two from 4 KiB to 512 MiB; 0:
	// EarlyBuffer or DefaultBuffer
	ReceiveBuffer int // what the peer can send before it is read
	SendBuffer    int // what can be on its way to the peer

	Linger    time.Duration // how long Close and CloseWrite wait for the peer; 0: 5 seconds
	Data      []byte        // of Dial: up to 504 bytes, for Conn.Data at the other end
	Scheduler string        // of Dial: as edge.Scheduler
}

const (
	minBuffer = 4 << 10
	maxBuffer = 512 << 20 // half of what immCount can count
)

// ErrProtocol ends a stream whose peer broke the rules of PROTOCOL clause 11, and a dial to a service that has no
// streams.
var ErrProtocol = errors.New("edge: the peer does not follow the rules of streams; use package stream of the same " +
	"release at both ends")

func (cfg *Config) normalize() error {
	for _, n := range []int{cfg.ReceiveBuffer, cfg.SendBuffer} {
		if n != 0 && !bufferSize(int64(n)) {
			return fmt.Errorf("%w: stream.Config: a buffer of %d bytes; choose a power of two from %d to %d",
				edge.ErrInvalid, n, minBuffer, maxBuffer)
		}
	}
	if cfg.Linger == 0 {
		cfg.Linger = lingerTime
	}
	if cfg.Linger < 0 {
		return fmt.Errorf("%w: stream.Config: Linger is negative", edge.ErrInvalid)
	}
	if len(cfg.Data) > maxData {
		return fmt.Errorf("%w: stream.Config: %d bytes of private data; a stream takes at most %d", edge.ErrInvalid,
			len(cfg.Data), maxData)
	}
	return nil
}

func bufferSize(n int64) bool { return n >= minBuffer && n <= maxBuffer && n&(n-1) == 0 }

// device returns the Device to use.
func (cfg *Config) device(ctx context.Context) (*edge.Device, error) {
	if cfg.Device != nil {
		return cfg.Device, nil
	}
	return core.Shared(ctx)
}

// register returns the memory of a stream beside so many other connections, and cfg with the sizes of its buffers.
func (cfg Config) register(ctx context.Context, dev *edge.Device, others int) (*edge.Region, Config, error) {
	n := EarlyBuffer
	if others >= EarlyStreams {
		n = DefaultBuffer
	}
	for ; ; n = DefaultBuffer {
		is := cfg
		is.ReceiveBuffer, is.SendBuffer = cmp.Or(cfg.ReceiveBuffer, n), cmp.Or(cfg.SendBuffer, n)
		r, err := dev.RegisterContext(ctx, is.ReceiveBuffer+is.SendBuffer)
		if err == nil {
			return r, is, nil
		}
		if n == DefaultBuffer || !errors.Is(err, edge.ErrMemlock) && !errors.Is(err, edge.ErrLimit) {
			return nil, cfg, fmt.Errorf("edge: memory for a stream: %w", err)
		}
	}
}
