package edge

import (
	"context"
	"errors"
	"net"
)

var shared = struct {
	turn chan struct{} // full while somebody looks at dev, or opens it
	dev  *Device
}{turn: make(chan struct{}, 1)}

// sharedDevice returns the Device behind the package's Dial and Listen, attached to the local daemon with the zero
// Config. One that somebody closed is replaced; one that lost its daemon finds the next by itself.
func sharedDevice(ctx context.Context) (*Device, error) {
	select {
	case shared.turn <- struct{}{}:
		defer func() { <-shared.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if shared.dev != nil && !errors.Is(shared.dev.Err(), net.ErrClosed) {
		return shared.dev, nil
	}
	d, err := Open(ctx, Config{})
	shared.dev = d
	return d, err
}

// Dial connects through the local daemon. Conn.Device gives the Device to register memory with.
func Dial(ctx context.Context, peer, service string, opts ...DialOption) (*Conn, error) {
	d, err := sharedDevice(ctx)
	if err != nil {
		return nil, err
	}
	return d.Dial(ctx, peer, service, opts...)
}

// Listen offers a service through the local daemon.
func Listen(ctx context.Context, service string) (*Listener, error) {
	d, err := sharedDevice(ctx)
	if err != nil {
		return nil, err
	}
	return d.Listen(ctx, service)
}
