// Package stream is net.Conn and net.Listener over package edge, so that net/http, gRPC and whatever else takes these
// run over the transport unmodified:
//
//	l, _ := stream.Listen(ctx, "web")
//	http.Serve(l, handler)
//
//	tr := &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
//		node, _, _ := net.SplitHostPort(addr)
//		return stream.Dial(ctx, node, "web")
//	}}
//
// A Conn has deadlines, half-close and the errors of package net, around those of package edge. Each end pins a receive
// and a send buffer (Config), and needs no goroutine. Bytes are copied once at each end; Conn.WriteRegion and
// Conn.ReadRegion copy none from and into registered memory. If a reader stops, its writer waits once the buffer is
// full, or after some thousand writes that are smaller than that; other streams go on. Like TCP, Write returns before
// the peer has the bytes. Close waits for that, for 5 seconds unless Config.Linger says otherwise.
package stream
