package scale

import (
	"context"

	"multiedge/edge"
)

// Probe asks what two hosts hold: this one, and one that runs Serve.
type Probe struct{ r run }

// NewProbe connects to a host that runs Serve.
func NewProbe(ctx context.Context, d *edge.Device, peer string) (*Probe, error) {
	p := &Probe{run{Spec: Spec{Peer: peer}, d: d}}
	return p, p.r.prepare(ctx)
}

// Hosts returns what both hosts hold now.
func (p *Probe) Hosts(ctx context.Context) (client, server Host, err error) {
	if server, err = p.r.server(ctx); err == nil {
		client, err = look(ctx, p.r.d)
	}
	return client, server, err
}

// Close ends the connection.
func (p *Probe) Close() { p.r.ctl.Close() }
