package shard

// Notice is something that happened, for those who watch.
type Notice struct {
	Kind, Peer, Node, Link, Text string
}

// Kinds of Notice.
const (
	NoticePeerUp   = "peer up"   // a session is open, and there was none
	NoticePeerDown = "peer down" // the session is over
	NoticePath     = "path"      // Text is its state
	NoticeClaim    = "identity claimed"
)

// ClaimText says that another host has this node's identity.
const ClaimText = "another host claims this node's identity"

// Twin says why another host may have the node's identity, and what to do.
type Twin struct{ Reason, Remedy string }
