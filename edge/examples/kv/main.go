// Kv is a key-value store that clients read by one-sided reads: the owner's processor does nothing for them. The owner
// alone writes.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"multiedge/edge"
	"multiedge/edge/examples/internal/run"
	"multiedge/edge/named"
)

const about = "Kv keeps a table of keys and values, from which clients read the keys that are their arguments."

func main() { run.Main(about, "kv", serve, use) }

func serve(ctx context.Context, dev *edge.Device, service string, ready func()) error {
	mem, err := dev.Register(slots * slotSize)
	if err != nil {
		return err
	}
	exported, err := named.Export(ctx, dev, mem, service, edge.RemoteRead)
	if err != nil {
		return err
	}
	if mem, err = exported.Region(ctx); err != nil { // from here on only Region replaces it
		return err
	}
	t := &table{exported, mem}
	t.put(ctx, "colour", "green")
	t.put(ctx, "shape", "round")
	ready()
	for i := 0; ; i++ { // a value that changes all the time: what is read is the one or the other
		t.put(ctx, "light", [2]string{"off", "on"}[i%2])
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

func use(ctx context.Context, dev *edge.Device, node, service string) error {
	keys := flag.Args()
	if len(keys) == 0 {
		keys = []string{"colour", "shape", "taste"}
	}
	mem, err := named.Import(ctx, dev, node, service)
	if err != nil {
		return err
	}
	defer mem.Conn().Close()
	local, err := dev.Register(4096)
	if err != nil {
		return err
	}
	r := &reader{mem, local}
	for _, key := range keys {
		value, ok, err := r.get(ctx, key)
		switch {
		case err != nil:
			return err
		case !ok:
			fmt.Printf("%s is not there\n", key)
		default:
			fmt.Printf("%s = %s\n", key, value)
		}
	}
	return nil
}
