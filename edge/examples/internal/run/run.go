// Package run is what the examples' main functions have in common: flags, a Device, and both ends in one process.
package run

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"multiedge/edge"
	"multiedge/edge/fabric"
)

// Server offers a service until ctx ends. It calls ready once clients may dial.
type Server func(ctx context.Context, dev *edge.Device, service string, ready func()) error

// Client uses the service at a node.
type Client func(ctx context.Context, dev *edge.Device, node, service string) error

// Main is main of an example. about says what the program does; service is the default name.
func Main(about, service string, serve Server, use Client) {
	log.SetFlags(0)
	node := flag.String("node", "", "the node of the server; without it this program is the server")
	name := flag.String("service", service, "the name under which the server is dialled")
	memory := flag.Bool("memory", false, "be server and client in one process, over a network in memory")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(),
			"%s\n\nStart it on one host, and with -node NAME on another; the name is "+
				"what 'edgectl peers list' says.\nEach host needs edged running; -memory needs nothing.\n\n", about)
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case *memory:
		err = inMemory(ctx, *name, serve, use)
	case *node == "":
		err = onDaemon(ctx, func(d *edge.Device) error {
			return serve(ctx, d, *name, func() { fmt.Printf("serving %q at node %s\n", *name, d.Name()) })
		})
	default:
		err = onDaemon(ctx, func(d *edge.Device) error { return use(ctx, d, *node, *name) })
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}

// onDaemon attaches to the local daemon.
func onDaemon(ctx context.Context, do func(*edge.Device) error) error {
	d, err := edge.Open(ctx, edge.Config{})
	if err != nil {
		return err
	}
	defer d.Close()
	return do(d)
}

// inMemory has two hosts in this process, and ends with the client.
func inMemory(ctx context.Context, service string, serve Server, use Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	net := fabric.New()
	defer net.Close()
	server, err := net.Open("server")
	if err != nil {
		return err
	}
	client, err := net.Open("client")
	if err != nil {
		return err
	}
	ready, served := make(chan struct{}), make(chan error, 1)
	go func() { served <- serve(ctx, server, service, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-served:
		return err
	}
	err = use(ctx, client, "server", service)
	cancel()
	<-served // nobody uses memory of the devices from here on
	return err
}
