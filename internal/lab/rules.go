package lab

import (
	"fmt"
	"os/exec"
	"strings"
)

// SetRules has the router of a host's port treat what it forwards by rules of nftables, each a line such as "ip ecn
// ect0 ip ecn set ce"; without any it forwards everything as it is. It takes packets as the host sent them: one that is
// to be cut up later is one packet.
func (k *Link) SetRules(host int, rules ...string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.medium != Routed {
		return fmt.Errorf("lab: link %d is a %v and has no router", k.index, k.medium)
	}
	const table = "inet edge"
	text := "table " + table + " {}\ndelete table " + table + "\n"
	if len(rules) > 0 {
		text += "table " + table + " {\nchain forward {\ntype filter hook forward priority 0\n" +
			strings.Join(rules, "\n") + "\n}\n}\n"
	}
	return k.lab.router(host).do(func() error {
		nft := exec.Command("nft", "-f", "-")
		nft.Stdin = strings.NewReader(text)
		if out, err := nft.CombinedOutput(); err != nil {
			return fmt.Errorf("lab: nft: %w: %s (install nftables)", err, out)
		}
		return nil
	})
}
