package ipc

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Greeting is what hello and its reply say.
type Greeting struct {
	Lowest, Highest  uint32   // the client's versions
	Version          uint32   // reply: in force
	Features         Features // wanted; reply: in force
	Required         Features // without any of these the client cannot go on
	SQESize, CQESize uint16   // entries of the rings: the longest that the client knows; reply: in force
	Depth            int      // operations in flight; 0: the daemon's choice
	Shard            int      // the wished one, from 1; 0: any. Reply: the client's
	Node             string   // reply: node id in hexadecimal
	Rings            Layout   // reply
	Window           int      // reply: operations in flight allowed per connection
}

// Hello returns the greeting of a client of this release.
func Hello(depth int) *Message {
	return &Message{ID: 1, Kind: KindHello, Greeting: Greeting{Lowest: LowestVersion, Highest: HighestVersion,
		Features: ClientFeatures, SQESize: SQESize, CQESize: CQESize, Depth: depth}}
}

// Agree returns the version and features in force between the client that greets and a daemon of this release that has
// certain features, or why there is nothing to agree on (A2.2 to A2.6).
func (g *Greeting) Agree(have Features) (version uint32, in Features, err error) {
	return g.agree(LowestVersion, HighestVersion, have)
}

func (g *Greeting) agree(lowest, highest uint32, have Features) (version uint32, in Features, err error) {
	both := fmt.Sprintf("the client speaks versions %d to %d, this daemon %d to %d", g.Lowest, g.Highest, lowest,
		highest)
	switch {
	case g.Highest < g.Lowest:
		return 0, 0, Errorf(CodeInvalid, "%s; the client's lowest version is above its highest", both)
	case g.Highest < lowest:
		return 0, 0, Errorf(CodeVersion, "%s: upgrade the client", both)
	case g.Lowest > highest:
		return 0, 0, Errorf(CodeVersion, "%s: upgrade the daemon, or restart it if that was done", both)
	case g.Required&^have != 0:
		return 0, 0, Errorf(CodeVersion, "%s: it has no features %#x, which the client requires: upgrade the "+
			"daemon, or restart it if that was done", both, uint64(g.Required&^have))
	case g.SQESize < SQESize, g.CQESize < CQESize:
		return 0, 0, Errorf(CodeVersion, "%s: the client's ring entries of %d and %d bytes are shorter than %d "+
			"and %d: upgrade the client", both, g.SQESize, g.CQESize, SQESize, CQESize)
	}
	return min(g.Highest, highest), (g.Features | g.Required) & have, nil
}

// CheckReply is the client's look at what the daemon answered to its greeting g.
func (g *Greeting) CheckReply(r *Greeting) error {
	switch {
	case r.Version < g.Lowest || r.Version > g.Highest:
		return fmt.Errorf("the daemon chose version %d, this library speaks %d to %d", r.Version, g.Lowest, g.Highest)
	case r.Features&^(g.Features|g.Required) != 0, g.Required&^r.Features != 0:
		return fmt.Errorf("the daemon chose features %#x, this library asked for %#x and requires %#x",
			uint64(r.Features), uint64(g.Features), uint64(g.Required))
	case r.SQESize != SQESize || r.CQESize != CQESize:
		return fmt.Errorf("the daemon's ring entries have %d and %d bytes, this library knows %d and %d", r.SQESize,
			r.CQESize, SQESize, CQESize)
	case r.Rings.Depth() != g.Depth:
		return fmt.Errorf("the daemon made rings of depth %d instead of %d", r.Rings.Depth(), g.Depth)
	}
	return r.Rings.Validate()
}

// ErrJSON is returned for a packet of version 1, which RefuseJSON answers.
var ErrJSON = errors.New("ipc: the client speaks version 1, which was JSON; upgrade it")

// RefuseJSON answers the packet that Recv has just returned ErrJSON for in its own way, so that a client of version 1
// says why it is not served.
func (c *Conn) RefuseJSON() error {
	var asked struct {
		ID   uint64 `json:"id"`
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(c.buf[:c.last], &asked); err != nil || asked.ID == 0 || asked.Kind == "" {
		return ErrJSON
	}
	type reason struct {
		Code string `json:"code"`
		Text string `json:"text"`
	}
	answer, err := json.Marshal(&struct {
		ID    uint64 `json:"id"`
		Kind  string `json:"kind"`
		Error reason `json:"error"`
	}{asked.ID, asked.Kind, reason{CodeVersion.String(), fmt.Sprintf("the client speaks version 1, this daemon %d "+
		"to %d: upgrade the client", LowestVersion, HighestVersion)}})
	if err == nil {
		_, err = c.uc.Write(answer)
	}
	return err
}
