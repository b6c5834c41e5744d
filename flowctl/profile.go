package flowctl

import (
	"fmt"
	"strings"
	"time"
)

// Profile is a named choice of everything tunable here.
type Profile struct {
	Name          string
	Window        int       // frames in flight per session, all paths together, unless long paths need more
	Most          int       // of them, whatever paths need; 0: any number
	Acks          AckParams // both sides' receive policy; the peer's Delay enters the probe timeout
	Congestion    Congestion
	CoarseTimeout time.Duration // longest wait between probes, however often they went unanswered
}

// Loss returns the Ledger's parameters under this profile, for a peer that acknowledges as acks says.
func (p *Profile) Loss(acks AckParams) LossParams {
	return LossParams{AckDelay: acks.Delay, CoarseTimeout: p.CoarseTimeout, Nacks: p.Acks.Exact}
}

// Profiles lists the profiles; the first is the default.
//
// paper is MultiEdge as published: a fixed window of 512 frames, its delays, acknowledgements on all data frames,
// negative acknowledgements that the sender obeys, the last frame sent again, no reaction to congestion. The paper does
// not give its coarse timeout. A probe is one small frame, so 25 ms cost a dark path 40 frames a second, and at 30 %
// loss both ways, where every other probe fails, longer waits would dominate. default keeps the window and replaces the
// delays and the congestion control by measured values.
var Profiles = []Profile{
	{Name: "default", Window: 512, Acks: DefaultAcks, Congestion: DefaultDelay,
		CoarseTimeout: 25 * time.Millisecond},
	{Name: "paper", Window: 512, Acks: PaperAcks, Congestion: FixedWindow(512),
		CoarseTimeout: 25 * time.Millisecond},
}

// Register adds a profile, before anything asks for it by name: in an init function.
func Register(p Profile) { Profiles = append(Profiles, p) }

// ProfileByName finds a profile; the empty name means the default.
func ProfileByName(name string) (Profile, error) {
	if name == "" {
		return Profiles[0], nil
	}
	var names []string
	for _, p := range Profiles {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Profile{}, fmt.Errorf("flowctl: unknown profile %q; choose one of %s", name, strings.Join(names, ", "))
}
