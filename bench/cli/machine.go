package cli

import (
	"context"
	"fmt"
	"strconv"

	"multiedge/bench/kit"
	"multiedge/bench/machine"
)

// The machine card of a result's head measures hand-overs with a second process: this program again.
func init() {
	kit.AddCommand(machine.CommandPeer, 2, func(_ context.Context, args []string) error {
		way, err := strconv.Atoi(args[0])
		core, err2 := strconv.Atoi(args[1])
		if err != nil || err2 != nil {
			return fmt.Errorf("%s: want two numbers, a way and a core", machine.CommandPeer)
		}
		return machine.Peer(way, core)
	})
}
