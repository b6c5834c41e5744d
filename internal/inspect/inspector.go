// Package inspect is how a node is seen: status, doctor, the reasons why a peer is not reached, recorded frames. It
// reads everything and changes nothing. What the shards know comes in views (package shard), copied in short slices on
// their threads.
package inspect

import (
	"multiedge/internal/config"
	"multiedge/internal/engine"
	"multiedge/internal/mono"
	"multiedge/internal/shard"
)

// Node is what is inspected. Any goroutine may call its functions.
type Node struct {
	Config    *config.Config // as the node was started with
	ID        engine.NodeID
	Epoch     uint64
	Version   string // of the program
	Serving   bool   // clients come by a control socket
	InMemory  bool   // links are no interfaces: frames do not leave the process
	Elsewhere bool   // links are in another network namespace than the process
	Shards    []*shard.Shard
	Ledger    Ledger
	Identity  func() *Identity     // nil: plaintext
	Reload    func() *ReloadStatus // the latest; nil: there was none
	Stopped   <-chan struct{}      // closed when the node begins to stop
}

// Ledger is what users were charged for.
type Ledger interface {
	Admitted() config.Limits                   // the limits in force
	Pinned() (bytes uint64)                    // registered memory
	Charged() (bytes uint64, regions int)      // that and queues, of all users
	Filled() (bytes uint64)                    // of spaces, on demand, of all users
	Of(uid uint32) (bytes uint64, regions int) // of one user
}

// Identity is what protects a node's frames.
type Identity struct {
	Key     string             // its public key
	KeyFile string             // empty: the key is in memory alone
	Peers   *config.Authorised // in force
}

// publicKey is empty in plaintext.
func (id *Identity) publicKey() string {
	if id == nil {
		return ""
	}
	return id.Key
}

// Inspector looks at a node, as often as anybody asks. It changes nothing.
type Inspector struct {
	node  Node
	began mono.Time // when the node did
	snaps snapshots
}

// New returns the inspector of a node that begins now.
func New(n Node) *Inspector { return &Inspector{node: n, began: mono.Now()} }

// stopped reports whether the node has begun to stop.
func (in *Inspector) stopped() bool {
	select {
	case <-in.node.Stopped:
		return true
	default:
		return false
	}
}

// Version is the program's.
func (in *Inspector) Version() string { return in.node.Version }
