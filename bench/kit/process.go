package kit

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// A process in a lab host and the process that started it exchange lines of JSON: events go up (Event), orders go down
// (in the role's own form). The end of its orders tells a process to quit.

// Event is what a process reports.
type Event struct {
	Started bool            `json:"started,omitempty"` // it is ready
	Note    string          `json:"note,omitempty"`    // for people
	Error   string          `json:"error,omitempty"`   // it ends
	Body    json.RawMessage `json:"body,omitempty"`    // otherwise: in the role's own form
}

// Into decodes the body.
func (e *Event) Into(v any) error {
	if e.Body == nil {
		return nil
	}
	return json.Unmarshal(e.Body, v)
}

// Role is what a process does, until its orders or ctx end.
type Role func(ctx context.Context, p *Port) error

var roles = map[string]Role{}

// AddRole adds a role. Packages call it when they are initialised.
func AddRole(name string, r Role) { roles[name] = r }

// Port connects a process in a lab host with the process that started it. Its methods may be called from any goroutine.
type Port struct {
	Orders <-chan json.RawMessage // closed when there will be no more

	job []byte
	mu  sync.Mutex
	out *json.Encoder
}

// runRole is the hidden subcommand lab-process.
func runRole(ctx context.Context, name, job string) error {
	r := roles[name]
	if r == nil {
		return fmt.Errorf("role %q is unknown", name)
	}
	return NewPort(job, os.Stdin, os.Stdout).Run(ctx, r)
}

// NewPort returns the port of a process with that job in JSON, which takes orders from in and reports to out.
func NewPort(job string, in io.Reader, out io.Writer) *Port {
	orders := make(chan json.RawMessage)
	go func() {
		defer close(orders)
		sc := bufio.NewScanner(in)
		for sc.Scan() {
			orders <- append(json.RawMessage(nil), sc.Bytes()...)
		}
	}()
	return &Port{Orders: orders, job: []byte(job), out: json.NewEncoder(out)}
}

// Run plays a role, and reports why it ended, if that was an error.
func (p *Port) Run(ctx context.Context, r Role) error {
	err := r(ctx, p)
	if err != nil {
		p.send(Event{Error: err.Error()})
	}
	return err
}

// Job decodes what the process is to do.
func (p *Port) Job(into any) error {
	if err := json.Unmarshal(p.job, into); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	return nil
}

// Started reports that the process is ready.
func (p *Port) Started() { p.send(Event{Started: true}) }

// Note reports something for people.
func (p *Port) Note(text string) { p.send(Event{Note: text}) }

// Emit reports an event in the role's own form.
func (p *Port) Emit(body any) error {
	b, err := json.Marshal(body)
	if err == nil {
		p.send(Event{Body: b})
	}
	return err
}

func (p *Port) send(e Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.Encode(e) // if the parent is gone, its end ends this process
}

// startTime bounds how long a daemon or a process may take to be ready.
const startTime = 20 * time.Second

// Start starts a role in a host, or ends by Check. Whoever starts it reads its Events until they are closed.
func (c *Cluster) Start(host int, role string, job any) *Process {
	p := c.launch(host, true, commandProcess, role, string(Get(json.Marshal(job))))
	events := make(chan Event)
	p.Events = events
	go func() {
		defer close(events)
		sc := bufio.NewScanner(p.out)
		sc.Buffer(nil, 1<<20)
		for sc.Scan() {
			var e Event
			if json.Unmarshal(sc.Bytes(), &e) == nil {
				events <- e
			}
		}
	}()
	return p
}

// Tell gives an order.
func (p *Process) Tell(order any) error {
	b, err := json.Marshal(order)
	if err == nil {
		_, err = p.in.Write(append(b, '\n'))
	}
	return err
}

// Pid is its process id.
func (p *Process) Pid() int { return p.proc.Pid() }

// Words is the end of what it wrote to standard error.
func (p *Process) Words() string { return p.stderr.String() }

// Ended is closed when it is gone.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// HasEnded reports whether it is gone.
func (p *Process) HasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Signal sends it a signal.
func (p *Process) Signal(s syscall.Signal) error { return p.proc.Signal(s) }

// Kill ends it with SIGKILL and returns when it is gone.
func (p *Process) Kill() {
	p.proc.Kill()
	<-p.ended
}

// Stop asks it to end, and makes sure that it does.
func (p *Process) Stop() {
	_ = p.proc.Signal(syscall.SIGTERM) // it may be gone already
	select {
	case <-p.ended:
	case <-time.After(2 * time.Second):
		p.Kill()
	}
	p.closePipes()
}
