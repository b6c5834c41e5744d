package engine

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"time"

	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// cookieTime is how long a cookie is good for: until the end of the interval after the one it was made in.
const cookieTime = 4 * time.Second

// cookies makes and checks the cookies of clause 4.3: a node that returns one has received a frame at the address it
// writes from, and nothing was kept to know that.
type cookies struct {
	mac hash.Hash
	sum [sha256.Size]byte
}

func newCookies(cfg *Config) cookies {
	key := cfg.CookieKey
	if key == [32]byte{} {
		key = sha256.Sum256(binary.BigEndian.AppendUint64([]byte("multiedge cookie"), cfg.Seed))
	}
	return cookies{mac: hmac.New(sha256.New, key[:])}
}

// make returns the cookie for the sender of in at address src; it is valid until the next call. over is the session
// that in would end.
func (c *cookies) make(interval mono.Time, src [6]byte, in *wire.Init, over uint32) []byte {
	var b [6 + 8 + 8 + 4 + 8 + 4]byte
	copy(b[0:], src[:])
	copy(b[6:], in.Node[:])
	binary.BigEndian.PutUint64(b[14:], in.Epoch)
	binary.BigEndian.PutUint32(b[22:], in.Session)
	binary.BigEndian.PutUint64(b[26:], uint64(interval))
	binary.BigEndian.PutUint32(b[34:], over)
	c.mac.Reset()
	c.mac.Write(b[:])
	return c.mac.Sum(c.sum[:0])[:wire.CookieLen]
}

func (c *cookies) valid(now mono.Time, src [6]byte, in *wire.Init, over uint32) bool {
	if len(in.Cookie) != wire.CookieLen {
		return false
	}
	interval := now / mono.Time(cookieTime)
	return hmac.Equal(in.Cookie, c.make(interval, src, in, over)) || hmac.Equal(in.Cookie, c.make(interval-1, src, in,
		over))
}
