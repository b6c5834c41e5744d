package shard

import "sync"

// Services keeps a service from being offered at two shards. Shards use it when a client begins or ceases to offer
// one.
type Services struct {
	mu    sync.Mutex
	names map[string]*Client
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
func NewServices() *Services { return &Services{names: map[string]*Client{}} }
