package contender

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/config"
)

// TLS is what encrypts for most programs: TLS 1.3 over TCP, by Go's crypto/tls with AES-128-GCM. Each end is a thread,
// as of TCP.
type TLS struct{ Over }

func (TLS) Name() string      { return report.TransportTLS }
func (c TLS) Variant() string { return c.variant("go", "aes128gcm") }

// Run implements Contender.
func (c TLS) Run(ctx context.Context, j *Job) *report.Row {
	cert := certificate()
	return streamRun{c, c.Over, config.Encrypted, func(f *flow) { handshake(f, cert) }}.run(ctx, j)
}

// certificate returns one of a key made for it. That the client does not verify it costs nothing afterwards.
func certificate() tls.Certificate {
	key := kit.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	t := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der := kit.Get(x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// handshake puts TLS between the ends of a flow and its sockets.
func handshake(f *flow, cert tls.Certificate) {
	// Records have their full size from the first on, as after a megabyte.
	conf := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true,
		DynamicRecordSizingDisabled: true, SessionTicketsDisabled: true}
	client, server := tls.Client(netConn{f.sockets[0]}, conf), tls.Server(netConn{f.sockets[1]}, conf)
	kit.Doing(func() {
		kit.Together(context.Background(), func(context.Context) { kit.Check(server.Handshake()) },
			func(context.Context) {
				err := client.Handshake()
				if err != nil {
					f.shutdown() // or the server would wait
				}
				kit.Check(err)
			})
	}, "handshake")
	if suite := client.ConnectionState().CipherSuite; suite != tls.TLS_AES_128_GCM_SHA256 {
		kit.Fail("this machine's crypto/tls chose %s, not AES-128-GCM: it sees no AES instructions",
			tls.CipherSuiteName(suite))
	}
	f.from.Conn, f.to.Conn = client, server
}

// netConn is a socket for crypto/tls, without what that does not need.
type netConn struct{ *socket }

func (netConn) LocalAddr() net.Addr              { return nil }
func (netConn) RemoteAddr() net.Addr             { return nil }
func (netConn) SetDeadline(time.Time) error      { return nil }
func (netConn) SetReadDeadline(time.Time) error  { return nil }
func (netConn) SetWriteDeadline(time.Time) error { return nil }
