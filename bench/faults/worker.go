package faults

import (
	"context"
	"encoding/json"

	"multiedge/bench/kit"
)

// worker is a process of a scenario: it takes orders and reports events.
type worker struct {
	*kit.Port
	job Job
}

func (w *worker) emit(e Event) {
	switch {
	case e.Started:
		w.Started()
	case e.Note != "":
		w.Note(e.Note)
	default:
		_ = w.Emit(e) // strings and numbers
	}
}

// roleFault is a process of a scenario in a lab host; Job.Role says which.
const roleFault = "fault"

func init() { kit.AddRole(roleFault, work) }

// work does a job until it is told to quit or ctx ends. Roles end by kit.Check when they cannot go on.
func work(ctx context.Context, p *kit.Port) error {
	return kit.Try(func() {
		w := &worker{Port: p}
		kit.Check(p.Job(&w.job))
		kit.Check(becomeUser(w.job.UID))
		run := map[string]func(context.Context, *worker){
			RoleServer: runServer, RoleClient: runClient, RoleRaw: runRaw, RoleInject: runInject, RoleDial: runDial,
			RoleHostile: runHostile,
		}[w.job.Role]
		if run == nil {
			kit.Fail("job: role %q is unknown", w.job.Role)
		}
		run(ctx, w)
	})
}

// wait waits for the order to quit and passes other orders to handle; nil ignores them.
func (w *worker) wait(ctx context.Context, handle func(Order)) {
	for {
		select {
		case text, ok := <-w.Orders:
			var o Order
			if !ok || json.Unmarshal(text, &o) != nil || o.Do == DoQuit {
				return
			}
			if handle != nil {
				handle(o)
			}
		case <-ctx.Done():
			return
		}
	}
}
