package stream

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"multiedge/edge"
	"multiedge/edge/internal/memnet"
)

// rpcServer is gRPC's own health service behind a Listener. A Check of a service in gates waits there.
type rpcServer struct {
	*grpc.Server
	health *health.Server
	gates  map[string]*gate
	served chan error
}

type gate struct {
	came chan struct{} // a call has
	open chan struct{}
}

func serveRPC(t *testing.T, l net.Listener) *rpcServer {
	s := &rpcServer{health: health.NewServer(), gates: map[string]*gate{}, served: make(chan error, 1)}
	for _, name := range []string{"late", "held"} {
		s.gates[name] = &gate{make(chan struct{}, 100), make(chan struct{})}
		s.health.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
	}
	s.Server = grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
		handler grpc.UnaryHandler) (any, error) {
		if p, ok := peer.FromContext(ctx); !ok || p.Addr != net.Addr(Addr{"a", "s"}) {
			t.Errorf("a call from %v", p)
		}
		if r, ok := req.(*healthpb.HealthCheckRequest); ok && s.gates[r.Service] != nil {
			s.gates[r.Service].came <- struct{}{}
			select {
			case <-s.gates[r.Service].open:
			case <-t.Context().Done(): // the test has failed
			}
		}
		return handler(ctx, req)
	}))
	healthpb.RegisterHealthServer(s.Server, s.health)
	go func() { s.served <- s.Serve(l) }()
	t.Cleanup(s.Stop)
	return s
}

// rpcClient is a gRPC client, which dials streams.
func rpcClient(t *testing.T, d *edge.Device) (*grpc.ClientConn, healthpb.HealthClient) {
	cc, err := grpc.NewClient("passthrough:///b", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, node string) (net.Conn, error) {
			return Config{Device: d}.Dial(ctx, node, "s")
		}))
	must(t, err)
	t.Cleanup(func() { cc.Close() })
	return cc, healthpb.NewHealthClient(cc)
}

// wantStatus compares what a call returned.
func wantStatus(t *testing.T, r *healthpb.HealthCheckResponse, err error,
	want healthpb.HealthCheckResponse_ServingStatus) {
	t.Helper()
	if err != nil || r.Status != want {
		t.Errorf("status %v, %v; want %v", r.GetStatus(), err, want)
	}
}

// gRPC, unmodified: calls at once, long messages, streams of a server, deadlines, and a server that stops in good order
// and comes back.
func TestStreamGRPC(t *testing.T) {
	for name, cfg := range map[string]Config{"embedded": {}, "small": {ReceiveBuffer: minBuffer,
		SendBuffer: minBuffer}} {
		t.Run(name, func(t *testing.T) { testGRPC(t, newStreamNet(t, cfg)) })
	}
	t.Run("daemons", func(t *testing.T) {
		var net memnet.Net
		n := &streamNet{a: onDaemon(t, &net, "a"), b: onDaemon(t, &net, "b")}
		var err error
		n.l, err = n.cfg(n.b).Listen(testContext(t), "s")
		must(t, err)
		testGRPC(t, n)
	})
}

// manyCalls makes many calls at once, among them long ones and some that fail.
func manyCalls(t *testing.T, ctx context.Context, n *streamNet, s *rpcServer, clients []healthpb.HealthClient) {
	const serving, not = healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING
	long := strings.Repeat("x", max(n.with.ReceiveBuffer, minBuffer)*5/4)
	s.health.SetServingStatus(long, not)
	var calls sync.WaitGroup
	for i := range 12 {
		c := clients[i%len(clients)]
		calls.Go(func() {
			for range 25 {
				r, err := c.Check(ctx, &healthpb.HealthCheckRequest{})
				wantStatus(t, r, err, serving)
			}
			r, err := c.Check(ctx, &healthpb.HealthCheckRequest{Service: long})
			wantStatus(t, r, err, not)
			if l, err := c.List(ctx, &healthpb.HealthListRequest{}); err != nil || l.Statuses[long].GetStatus() != not {
				t.Errorf("a list of %d, %v", len(l.GetStatuses()), err)
			}
			if _, err := c.Check(ctx, &healthpb.HealthCheckRequest{Service: "nothing"}); status.Code(
				err) != codes.NotFound {
				t.Errorf("no such service: %v", err)
			}
		})
	}
	calls.Wait()
}

// deadlinePasses checks a call whose deadline passes while the server has it: the first may pass before.
func deadlinePasses(t *testing.T, ctx context.Context, s *rpcServer, c healthpb.HealthClient) {
	late := s.gates["late"]
	for patience := 20 * time.Millisecond; len(late.came) == 0; patience *= 2 {
		short, cancel := context.WithTimeout(ctx, patience)
		_, err := c.Check(short, &healthpb.HealthCheckRequest{Service: "late"})
		cancel()
		if status.Code(err) != codes.DeadlineExceeded {
			t.Fatalf("a call that is held: %v", err)
		}
	}
	close(late.open)
}

// anotherServer takes the place of the one that ended, for the same clients, and is torn from them.
func anotherServer(t *testing.T, ctx context.Context, n *streamNet, clients []healthpb.HealthClient) {
	const serving = healthpb.HealthCheckResponse_SERVING
	l, err := n.cfg(n.b).Listen(ctx, "s")
	must(t, err)
	s := serveRPC(t, l)
	for _, c := range clients {
		r, err := c.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
		wantStatus(t, r, err, serving)
	}
	w, err := clients[1].Watch(ctx, &healthpb.HealthCheckRequest{})
	must(t, err)
	r, err := w.Recv()
	wantStatus(t, r, err, serving)
	s.Stop()
	if _, err := w.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the server has gone: %v", err)
	}
	if _, err := clients[2].Check(ctx, &healthpb.HealthCheckRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a call to nobody: %v", err)
	}
	must(t, <-s.served)
}

func testGRPC(t *testing.T, n *streamNet) {
	const serving, not = healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING
	ctx := testContext(t)
	s := serveRPC(t, n.l)
	var clients [3]healthpb.HealthClient
	var conns [len(clients)]*grpc.ClientConn
	for i := range clients {
		conns[i], clients[i] = rpcClient(t, n.a)
	}
	manyCalls(t, ctx, n, s, clients[:])

	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	var watches [len(clients)]grpc.ServerStreamingClient[healthpb.HealthCheckResponse]
	for i, c := range clients {
		var err error
		watches[i], err = c.Watch(watching, &healthpb.HealthCheckRequest{Service: "watched"})
		must(t, err)
		r, err := watches[i].Recv()
		wantStatus(t, r, err, healthpb.HealthCheckResponse_SERVICE_UNKNOWN)
	}
	for i := range 20 {
		now := [...]healthpb.HealthCheckResponse_ServingStatus{serving, not}[i%2]
		s.health.SetServingStatus("watched", now)
		for _, w := range watches {
			r, err := w.Recv()
			wantStatus(t, r, err, now)
		}
	}

	deadlinePasses(t, ctx, s, clients[0])

	// The server stops while there are watches and a call; the clients hear of it, and it waits for them.
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		r, err := clients[0].Check(ctx, &healthpb.HealthCheckRequest{Service: "held"})
		wantStatus(t, r, err, serving)
	}()
	<-s.gates["held"].came
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.GracefulStop()
	}()
	for _, cc := range conns {
		if !cc.WaitForStateChange(ctx, connectivity.Ready) {
			t.Fatal("a client did not hear that the server stops")
		}
	}
	s.health.SetServingStatus("watched", serving)
	for _, w := range watches {
		r, err := w.Recv()
		wantStatus(t, r, err, serving)
	}
	select {
	case <-stopped:
		t.Error("the server stopped before its calls had ended")
	default:
	}
	close(s.gates["held"].open)
	<-finished
	stopWatching()
	for _, w := range watches {
		if _, err := w.Recv(); status.Code(err) != codes.Canceled {
			t.Errorf("a watch was given up: %v", err)
		}
	}
	<-stopped
	must(t, <-s.served)

	anotherServer(t, ctx, n, clients[:])
}
