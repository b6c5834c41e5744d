package scale

import (
	"context"

	"multiedge/edge"
)

// Probe asks what two hosts hold: this one, and one that runs Serve.
type Probe struct{ r run }

// NewProbe connects to a host that runs Serve.
func NewProbe(ctx context.Context, d *edge.Device, peer string) *Probe {
	p := &Probe{run{Spec: Spec{Peer: peer}, d: d}}
	p.r.prepare(ctx)
	return p
}

// Hosts returns what both hosts hold now.
func (p *Probe) Hosts(ctx context.Context) (client, server Host) {
	server = p.r.server(ctx)
	return look(ctx, p.r.d), server
}

// Close ends the connection.
func (p *Probe) Close() { p.r.ctl.Close() }
