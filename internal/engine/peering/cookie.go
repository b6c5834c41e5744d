package peering

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"time"

	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// CookieTime is how long a cookie is good for: until the end of the interval after the one it was made in.
const CookieTime = 4 * time.Second

// Cookies makes and checks the cookies of clause 4.3: a node that returns one has received a frame at the address it
// writes from, and nothing was kept to know that.
type Cookies struct {
	keyed hash.Hash
	sum   [sha256.Size]byte
}

// NewCookies returns those of a secret key; zero: of one that is made from seed.
func NewCookies(key [32]byte, seed uint64) Cookies {
	if key == [32]byte{} {
		key = sha256.Sum256(binary.BigEndian.AppendUint64([]byte("multiedge cookie"), seed))
	}
	return Cookies{keyed: hmac.New(sha256.New, key[:])}
}

// Make returns the cookie for the sender of in at address src; it is valid until the next call. over is the session
// that in would end.
func (c *Cookies) Make(interval mono.Time, src frame.Addr, in *wire.Init, over uint32) []byte {
	const n = frame.WholeLen
	var b [n + 8 + 8 + 4 + 8 + 4]byte
	src.AppendWhole(b[:0])
	copy(b[n:], in.Node[:])
	binary.BigEndian.PutUint64(b[n+8:], in.Epoch)
	binary.BigEndian.PutUint32(b[n+16:], in.Session)
	binary.BigEndian.PutUint64(b[n+20:], uint64(interval))
	binary.BigEndian.PutUint32(b[n+28:], over)
	c.keyed.Reset()
	c.keyed.Write(b[:])
	return c.keyed.Sum(c.sum[:0])[:wire.CookieLen]
}

func (c *Cookies) Valid(now mono.Time, src frame.Addr, in *wire.Init, over uint32) bool {
	if len(in.Cookie) != wire.CookieLen {
		return false
	}
	interval := now / mono.Time(CookieTime)
	return hmac.Equal(in.Cookie, c.Make(interval, src, in, over)) || hmac.Equal(in.Cookie, c.Make(interval-1, src, in,
		over))
}
