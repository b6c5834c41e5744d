package named

import "sync"

// How many importers of one peer are admitted to a named export at once, and how many more may wait for that. Each that
// never answers takes admitTime, which is that peer's time alone.
const (
	mostAdmitted = 64
	mostComing   = 2 * mostAdmitted
)

// admissions are the importers that are being admitted, by peer. The zero admissions is ready.
type admissions struct {
	mu sync.Mutex
	of map[string]*admission
}

type admission struct {
	peer string
	n    int
	room chan struct{} // one place for each that is admitted at once
}

// enter counts an importer of a peer. It returns nil if too many of that peer are coming.
func (a *admissions) enter(peer string) *admission {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.of[peer]
	if p == nil {
		if a.of == nil {
			a.of = map[string]*admission{}
		}
		p = &admission{peer: peer, room: make(chan struct{}, mostAdmitted)}
		a.of[peer] = p
	}
	if p.n == mostComing {
		return nil
	}
	p.n++
	return p
}

func (a *admissions) leave(p *admission) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.n--; p.n == 0 {
		delete(a.of, p.peer)
	}
}
