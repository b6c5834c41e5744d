package edge

import (
	"context"
	"fmt"
	"time"
)

// A daemon that died is noticed at once, by the end of the control socket. One that is stopped, hung or starved keeps
// its socket; its pulse in the rings stands still. Nothing is ended for it: it may go on any time, and would then still
// write into memory that operations were given. Those who wait go on waiting, the log says why, and so does the error
// of a wait whose context ends.
const (
	pulseLook  = 2 * time.Second
	pulseLooks = 3 // in a row without a beat: what we see is not that we were stopped ourselves
)

// pulse is what the supervisor knows of the daemon's; only it uses it.
type pulse struct {
	last  uint32
	still int // looks in a row that saw no beat
}

// checkPulse looks for a beat, and logs when the daemon falls silent and when it runs again.
func (d *Device) checkPulse(a *attachment) {
	p := &a.life.pulse
	beat := a.rings.Pulse()
	if beat != p.last {
		p.last, p.still = beat, 0
		if a.life.silent.Swap(false) {
			d.log().Info("edge: the daemon runs again", "socket", d.cfg.Socket)
		}
		return
	}
	if p.still++; p.still == pulseLooks && beat != 0 {
		a.life.silent.Store(true)
		d.log().Warn("edge: the daemon does not run; everything waits for it", "socket", d.cfg.Socket, "reason",
			ErrDaemonSilent)
	}
}

// ended returns the error of a context that ended a wait, with the reason for the wait if that is the daemon.
func (d *attachment) ended(ctx context.Context) error {
	if d.life.silent.Load() {
		return fmt.Errorf("%w: %w", ErrDaemonSilent, ctx.Err())
	}
	return ctx.Err()
}
