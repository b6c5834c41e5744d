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

// Order is what a process is told.
type Order struct {
	Do   string `json:"do"` // one of the Do constants
	Name string `json:"name,omitempty"`
	File string `json:"file,omitempty"`
	Rate int    `json:"rate,omitempty"` // frames a second of an injector; 0: as many as go
}

// Orders.
const (
	DoMark   = "mark"   // clients: report what was done since the last mark
	DoDrain  = "drain"  // clients: finish what is in flight, close connections, hand in claims
	DoResume = "resume" // clients: work again after a drain
	DoVerify = "verify" // servers: compare memory with the claim in File
	DoRevoke = "revoke" // servers: withdraw what is exported now
	DoVoid   = "void"   // servers: the client never got the connection Name; its memory must be untouched
	DoForget = "forget" // servers: let go of the memory of a client that was killed, by the prefix Name
	DoAim    = "aim"    // injectors: send to the daemon or to nobody, as Name says, at Rate
	DoQuit   = "quit"
)

// Event is what a process reports. One field is set. The first three travel as those of kit.Event.
type Event struct {
	Started bool     `json:"-"`
	Note    string   `json:"-"`
	Error   string   `json:"-"`               // the process ends
	Wrong   string   `json:"wrong,omitempty"` // a server found what must never happen
	Window  *Window  `json:"window,omitempty"`
	Drained bool     `json:"drained,omitempty"`
	Claim   string   `json:"claim,omitempty"` // a file to verify
	Void    string   `json:"void,omitempty"`  // a connection that the client failed to get, and the server may have
	Checked *Checked `json:"checked,omitempty"`
	Ended   *Ended   `json:"ended,omitempty"`
	Revoked int      `json:"revoked,omitempty"`
	Aimed   string   `json:"aimed,omitempty"`
	Result  *Result  `json:"result,omitempty"` // of a raw client, injector or dialler
	Rest    *Rest    `json:"rest,omitempty"`
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
