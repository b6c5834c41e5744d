package named_test

import (
	"context"
	"fmt"
	"log"

	"multiedge/edge"
	"multiedge/edge/fabric"
	"multiedge/edge/named"
)

// Memory is exported by name, once; whoever imports it connects by that.
func ExampleImport() {
	ctx := context.Background()
	fab := fabric.New() // programs use edge.Open
	defer fab.Close()
	owner, reader := open(fab, "owner"), open(fab, "reader")

	mem, err := owner.Register(4096)
	check(err)
	copy(mem.Bytes(), "colour=green")
	table, err := named.Export(ctx, owner, mem, "table", edge.RemoteRead)
	check(err)

	remote, err := named.Import(ctx, reader, "owner", "table")
	check(err)
	entry := make([]byte, 12)
	_, err = remote.ReadAt(entry, 0)
	check(err)
	fmt.Printf("%s, %d importer\n", entry, table.Importers())
	_, err = table.Unexport(ctx)
	check(err)
	// Output: colour=green, 1 importer
}

func open(fab *fabric.Fabric, name string) *edge.Device {
	d, err := fab.Open(name)
	check(err)
	return d
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
