package contender

import (
	"context"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/config"
)

// KTLS is TLS 1.3 over TCP whose records the kernel seals and opens, with AES-128-GCM. Both ends have keys that
// everybody knows, in place of a handshake, which the kernel leaves to programs.
type KTLS struct{ Over }

func (KTLS) Name() string      { return report.TransportKTLS }
func (c KTLS) Variant() string { return c.variant("aes128gcm") }

// Missing implements Contender. A kernel that has TLS refuses it only because the socket is not connected.
func (KTLS) Missing() string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "kernel TLS is left out: " + err.Error()
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_ULP, "tls"); errors.Is(err, unix.ENOENT) {
		return "this kernel has no TLS, so ktls is left out: modprobe tls, or CONFIG_TLS"
	}
	return ""
}

// Run implements Contender.
func (c KTLS) Run(ctx context.Context, j *Job) *report.Row {
	return streamRun{c, c.Over, config.Encrypted, kernelTLS}.run(ctx, j)
}

// From linux/tls.h.
const (
	solTLS    = 282
	tlsTx     = 1
	tlsRx     = 2
	tlsInfo   = 40 // struct tls12_crypto_info_aes_gcm_128, which TLS 1.3 has as well
	tls13     = 0x0304
	aes128gcm = 51
)

// cryptoInfo describes the keys of one direction: version, cipher, iv, key, salt and the number of the first record.
func cryptoInfo(direction byte) []byte {
	b := make([]byte, tlsInfo)
	binary.NativeEndian.PutUint16(b, tls13)
	binary.NativeEndian.PutUint16(b[2:], aes128gcm)
	for i := range b[4:32] { // iv of 8 bytes, key of 16, salt of 4
		b[4+i] = direction
	}
	return b
}

// kernelTLS makes the kernel seal and open the bytes of a flow's sockets.
func kernelTLS(f *flow) {
	for i, s := range f.sockets {
		kit.Checkf(unix.SetsockoptString(s.fd, unix.IPPROTO_TCP, unix.TCP_ULP, "tls"), "TCP_ULP")
		for way, direction := range map[int]int{tlsTx: i, tlsRx: 1 - i} {
			keys := string(cryptoInfo(byte(direction)))
			kit.Checkf(unix.SetsockoptString(s.fd, solTLS, way, keys), "keys of kernel TLS")
		}
	}
}
