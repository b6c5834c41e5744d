// HTTP runs net/http, unmodified, over streams instead of TCP.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"multiedge/edge"
	"multiedge/edge/examples/internal/run"
	"multiedge/edge/stream"
)

const about = "HTTP serves web pages over streams of the transport, and gets one."

func main() { run.Main(about, "web", serve, use) }

func serve(ctx context.Context, dev *edge.Device, service string, ready func()) error {
	l, err := stream.Config{Device: dev}.Listen(ctx, service)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s for %s\n", r.URL.Path, r.RemoteAddr)
	})}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	ready()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func use(ctx context.Context, dev *edge.Device, node, service string) error {
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			node, _, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			return stream.Config{Device: dev}.Dial(ctx, node, service)
		},
	}}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, "GET", "http://"+node+"/hello", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	fmt.Printf("%s: %s", answer.Status, body)
	return err
}
