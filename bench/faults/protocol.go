package faults

import (
	"context"
	"encoding/json"
	"time"

	"multiedge/bench/kit"
)

// Job is what a process of a scenario is to do. Lab hosts get it as JSON.
type Job struct {
	Role     string        `json:"role"` // one of the Role constants
	Socket   string        `json:"socket"`
	Dir      string        `json:"dir,omitempty"`  // for claims
	Name     string        `json:"name,omitempty"` // prefix of connection names
	Peer     string        `json:"peer,omitempty"`
	Service  string        `json:"service,omitempty"`
	Mix      string        `json:"mix,omitempty"`
	Conns    int           `json:"conns,omitempty"`
	Depth    int           `json:"depth,omitempty"`
	Seed     uint64        `json:"seed,omitempty"`
	Deadline time.Duration `json:"deadline,omitempty"` // by which an operation must have ended
	Link     string        `json:"link,omitempty"`     // interface of an injector
	Driver   string        `json:"driver,omitempty"`   // of that link
	Kind     string        `json:"kind,omitempty"`     // what an injector or a raw client does
	Target   []byte        `json:"target,omitempty"`   // address an injector sends to
	Node     []byte        `json:"node,omitempty"`     // identity that an injector claims; its name is Peer
	File     string        `json:"file,omitempty"`     // captured frames of an injector
	UID      int           `json:"uid,omitempty"`      // the process becomes this user; 0: root
	Count    int           `json:"count,omitempty"`    // how many of what the role does; 0: until told to stop
	Spaces   bool          `json:"spaces,omitempty"`   // memory of servers and clients lies in spaces
}

// Roles of processes.
const (
	RoleServer  = "server"  // offers memory and compares it with what clients claim
	RoleClient  = "client"  // moves data and keeps the oracle
	RoleRaw     = "raw"     // speaks the daemon's protocol by hand, to break its rules
	RoleInject  = "inject"  // sends frames of its own making
	RoleDial    = "dial"    // opens connections, one after another
	RoleHostile = "hostile" // misbehaves as package hostile does, until told to drain
)

// Order has a process call one of its functions (orders), whose result is the answer.
type Order struct {
	Do  string          `json:"do"`
	Arg json.RawMessage `json:"arg,omitempty"`
}

// doQuit is the order that ends a process, without an answer.
const doQuit = "quit"

// Event is what a process reports. One field is set. The first three travel as those of kit.Event.
type Event struct {
	Started bool            `json:"-"`
	Note    string          `json:"-"`
	Error   string          `json:"-"`               // the process ends
	Wrong   string          `json:"wrong,omitempty"` // a server found what must never happen
	Claim   *Handed         `json:"claim,omitempty"`
	Ended   *Ended          `json:"ended,omitempty"`
	Rest    *Rest           `json:"rest,omitempty"`
	To      string          `json:"to,omitempty"` // the order that Answer is to, or result
	Answer  json.RawMessage `json:"answer,omitempty"`
}

// result is what the answer of a process with a single task is to.
const result = "result"

// Handed is what a client hands in for a server to compare memory with.
type Handed struct {
	File string `json:"file,omitempty"` // the Claim
	Void string `json:"void,omitempty"` // a connection that the client failed to get: its memory must be untouched
}

// Aim is where an injector sends to.
type Aim struct {
	At   string `json:"at"`
	Rate int    `json:"rate,omitempty"` // frames a second; 0: as many as go
}

// Window is what a client did between two marks.
type Window struct {
	Name       string            `json:"name"`
	Seconds    float64           `json:"seconds"`
	Ops        uint64            `json:"ops"` // that succeeded
	Bytes      uint64            `json:"bytes"`
	Posted     uint64            `json:"posted"`    // since the start of the process
	Completed  uint64            `json:"completed"` // likewise, well or not
	Stall      time.Duration     `json:"stall"`     // longest time without a completion while there was work
	P50        float64           `json:"p50_ns"`
	P99        float64           `json:"p99_ns"`
	Worst      time.Duration     `json:"worst"`            // longest that one was under way in it, but for failed ones
	Errors     map[string]uint64 `json:"errors,omitempty"` // operations that failed, by type
	Untyped    []string          `json:"untyped,omitempty"`
	Late       uint64            `json:"late,omitempty"` // operations that missed their deadline
	Wrong      []string          `json:"wrong,omitempty"`
	Reconnects uint64            `json:"reconnects,omitempty"`
	FirstError time.Time         `json:"first_error,omitzero"`
	LastError  time.Time         `json:"last_error,omitzero"`
	DialErrors map[string]uint64 `json:"dial_errors,omitempty"`
	Up         int               `json:"up"` // connections that are up now
}

// Checked is what a server found in the memory of one connection.
type Checked struct {
	ID     string `json:"id"`
	Bytes  int    `json:"bytes"`
	Wrong  int    `json:"wrong"`  // bytes that neither the oracle nor a failed operation explains
	Canary int    `json:"canary"` // those among the wrong bytes that nobody may write
	// the client never had the connection: memory must be unchanged
	Void    bool     `json:"void,omitempty"`
	Late    bool     `json:"late"`              // memory changed after the connection's end or the revocation
	Notes   int      `json:"notes"`             // notifications missing, doubled or never sent
	Crashed int      `json:"crashed,omitempty"` // notifications that were lost when the owner's daemon was killed
	Details []string `json:"details,omitempty"`
}

// Ended says how a connection ended at the server.
type Ended struct {
	ID   string    `json:"id"`
	Type string    `json:"type"`
	At   time.Time `json:"at"`
}

// Result is what a role with a single task reports.
type Result struct {
	Done    uint64            `json:"done"`
	Failed  uint64            `json:"failed,omitempty"`
	Types   map[string]uint64 `json:"types,omitempty"`
	Seconds float64           `json:"seconds"`
	Fastest uint64            `json:"fastest,omitempty"` // of an injector: frames sent as fast as they went, in Seconds
	Slowest time.Duration     `json:"slowest,omitempty"`
	Wrong   []string          `json:"wrong,omitempty"` // answers that should have been others
}

// Rest is what a process holds.
type Rest struct {
	Goroutines  int    `json:"goroutines"`
	Descriptors int    `json:"descriptors"`
	Locked      uint64 `json:"locked_bytes"` // VmLck
}

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
		if w.job.UID != 0 {
			kit.Check(kit.BecomeUser(w.job.UID))
		}
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

// orders are the functions of a process that it can be ordered to call, by name.
type orders map[string]func(arg json.RawMessage) any

// on makes an order of a function.
func on[A, R any](f func(A) R) func(json.RawMessage) any {
	return func(arg json.RawMessage) any {
		var a A
		kit.Check(json.Unmarshal(arg, &a))
		return f(a)
	}
}

// answer reports what came of an order.
func (w *worker) answer(to string, v any) { w.emit(Event{To: to, Answer: kit.Get(json.Marshal(v))}) }

// serve carries out orders until it is told to quit or ctx ends.
func (w *worker) serve(ctx context.Context, do orders) {
	for {
		select {
		case text, ok := <-w.Orders:
			var o Order
			if !ok || json.Unmarshal(text, &o) != nil || o.Do == doQuit {
				return
			}
			if do[o.Do] == nil {
				kit.Fail("%s: order %q is unknown", w.job.Role, o.Do)
			}
			w.answer(o.Do, do[o.Do](o.Arg))
		case <-ctx.Done():
			return
		}
	}
}
