package shard

import "sync"

// Services keeps a service from being offered at two shards. Shards use it when a client begins or ceases to offer
// one. It also says which user dials a service of the own node.
type Services struct {
	mu      sync.Mutex
	names   map[string]*Client
	callers map[uint64]uint32 // users, by engine.InsideToken, of dials that were not answered
}

// calls notes who dials the own node.
func (d *Services) calls(token uint64, uid uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.callers[token] = uid
}

// called forgets it.
func (d *Services) called(token uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.callers, token)
}

// caller returns who dialled.
func (d *Services) caller(token uint64) (uid uint32, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	uid, ok = d.callers[token]
	return uid, ok
}

// claim gives a name to a client, or returns the client that has it.
func (d *Services) claim(name string, c *Client) (owner *Client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if owner = d.names[name]; owner == nil {
		d.names[name] = c
	}
	return owner
}

func (d *Services) release(name string) {
	d.mu.Lock()
	delete(d.names, name)
	d.mu.Unlock()
}

// NewServices returns an empty one.
func NewServices() *Services {
	return &Services{names: map[string]*Client{}, callers: map[uint64]uint32{}}
}
