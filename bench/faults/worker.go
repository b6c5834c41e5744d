package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// worker is a process of a scenario: it takes orders and reports events.
type worker struct {
	job    Job
	orders <-chan Order // closed when there will be none
	mu     sync.Mutex
	out    *json.Encoder
}

func (w *worker) emit(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.out.Encode(e) // if the parent is gone, its end ends this process
}

// WorkJSON does a job given as JSON, in a process of a lab host. It takes orders from in and writes events to out. It
// returns when it is told to quit or ctx ends.
func WorkJSON(ctx context.Context, job string, in io.Reader, out io.Writer) error {
	w := &worker{out: json.NewEncoder(out)}
	if err := json.Unmarshal([]byte(job), &w.job); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	if err := becomeUser(w.job.UID); err != nil {
		return err
	}
	orders := make(chan Order)
	w.orders = orders
	go func() {
		defer close(orders)
		sc := bufio.NewScanner(in)
		for sc.Scan() {
			var o Order
			if json.Unmarshal(sc.Bytes(), &o) == nil {
				orders <- o
			}
		}
	}()
	run := map[string]func(context.Context, *worker) error{
		RoleServer: runServer, RoleClient: runClient, RoleRaw: runRaw, RoleInject: runInject, RoleDial: runDial,
		RoleFiend: runFiend,
	}[w.job.Role]
	if run == nil {
		return fmt.Errorf("job: role %q is unknown", w.job.Role)
	}
	err := run(ctx, w)
	if err != nil {
		w.emit(Event{Error: err.Error()})
	}
	return err
}

// wait waits for the order to quit and passes other orders to handle; nil ignores them.
func (w *worker) wait(ctx context.Context, handle func(Order)) {
	for {
		select {
		case o, ok := <-w.orders:
			if !ok || o.Do == DoQuit {
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
