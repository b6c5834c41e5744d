package inspect

import (
	"cmp"
	"fmt"
	"time"

	"multiedge/internal/shard"
)

// Another host may have this node's identity, as the copy of a virtual machine does. Peers then lose one of the two
// whenever they hear the other.

// Claim is the latest Hello of another host with the node's identity.
type Claim struct {
	Link, MAC string
	Ago       time.Duration
}

// claimTime is for how long doctor speaks of a claim. A host that is there says Hello every hello_time.
const claimTime = time.Minute

// TwinOf says why another host may have a node's identity, which depends on what that is made of.
func TwinOf(id *Identity) shard.Twin {
	if id == nil {
		return shard.Twin{
			Reason: "it has this node's node_id, or its machine id and name, or it forges Hello",
			Remedy: "give each host a node_id, a name or a machine id of its own, and restart edged there",
		}
	}
	return shard.Twin{
		Reason: "it has a copy of this node's key, or it forges Hello, which is not authenticated",
		Remedy: fmt.Sprintf("give each host a key of its own: on one of the two stop edged, move its key file away, "+
			"edgectl key new %s, start edged, authorise the new key at the peers", cmp.Or(id.KeyFile, "FILE")),
	}
}

// claim looks at whether the node is the only one of its identity.
func (f *findings) claim(id *Identity, c *Claim) {
	if c == nil || c.Ago > claimTime {
		return
	}
	said := TwinOf(id)
	f.add(FindingProblem, "identity", fmt.Sprintf("%s: MAC %s, on link %s; %s", shard.ClaimText, c.MAC, c.Link,
		said.Reason), said.Remedy)
}
