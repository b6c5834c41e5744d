package op

import (
	"multiedge/internal/abi"
	"multiedge/internal/engine/op/span"
	"multiedge/regmem"
)

// Transfer redirection (VMMC §4.1, figure 3; clause 15.2): what arrives for part of exported memory goes to other
// memory of its owner for a while. Whether a byte does is decided when its segment is put in place, after the check of
// its key, and the owner is told which did.

const (
	// maxRedirects is how many redirections a connection may have.
	maxRedirects = 64
	// maxRedirected is how many spans of a redirection are remembered; what would make a further one is not redirected.
	maxRedirected = 16
	// mostStrewn is how many bytes one user's redirections may have outside of their two longest spans, which alone the
	// owner is told of: at the end the others are copied to where they would be without the redirection, all at once.
	mostStrewn = 1 << 20
)

// Span is bytes [Off, Off+N) of a redirection.
type Span struct{ Off, N uint64 }

// redirect is one redirection under way, of bytes [lo, hi) of the grant.
type redirect struct {
	Redirection
	lo, hi uint64
	home   []byte   // where they go without it
	got    span.Set // redirected
	strewn int      // bytes of got outside of its two longest spans
}

// Redirection is one as it is asked for.
type Redirection struct {
	Token  uint64 // of EvRedirected
	Name   uint64 // by which EndRedirect finds it
	Key    Key
	Off    uint64 // of its first byte, within the grant
	Dst    []byte
	Region *regmem.Region // of Dst; its InFlight counts the redirection
}

// Key is a key of exported memory.
type Key = regmem.Key

// Redirect sends what arrives from now on for len(Dst) bytes behind a key to Dst, which must stay valid and belongs to
// the endpoint until EvRedirected. That comes when every byte has been redirected, by EndRedirect, when the key is
// revoked (StatusKey) or the connection ends. It returns why there is none.
func (e *Endpoint) Redirect(id ConnID, r *Redirection) abi.Status {
	c := e.conn(id)
	if c == nil || c.state != connOpen {
		return abi.StatusClosed
	}
	// Not c.resolve: nobody ends the redirections when a domain's key is revoked.
	home, err := e.cfg.Grants.Resolve(r.Key, uint64(id), regmem.RemoteWrite, r.Off, uint64(len(r.Dst)))
	if err != nil {
		return statusOf(err)
	}
	if e.cfg.Grants.Carried() {
		return abi.StatusPermission // it has no bytes here
	}
	n := redirect{Redirection: *r, lo: r.Off, hi: r.Off + uint64(len(r.Dst)), home: home.Bytes}
	if len(c.recv.redirects) >= maxRedirects || n.lo == n.hi {
		return abi.StatusLimit
	}
	if o, _ := c.redirectAt(r.Key, n.lo, n.hi); o != nil {
		return abi.StatusTaken
	}
	r.Region.InFlight++
	c.recv.redirects = append(c.recv.redirects, n)
	return OK
}

// EndRedirect ends a redirection, and reports whether it was still there.
func (e *Endpoint) EndRedirect(id ConnID, name uint64) bool {
	c := e.conn(id)
	if c == nil {
		return false
	}
	n := len(c.recv.redirects)
	c.endRedirects(OK, func(r *redirect) bool { return r.Name == name })
	return len(c.recv.redirects) < n
}

// redirectAt returns the first redirection that has part of [lo, hi), and where in it that begins; nil: none has.
func (c *Conn) redirectAt(key regmem.Key, lo, hi uint64) (first *redirect, at uint64) {
	at = hi
	for i := range c.recv.redirects {
		r := &c.recv.redirects[i]
		if from := max(r.lo, lo); r.Key == key && from < min(r.hi, at) {
			first, at = r, from
		}
	}
	return first, at
}

// redirected puts a segment of a write in its place if part of that is redirected; dst is where it would be. It reports
// whether it did.
func (c *Conn) redirected(g *segment, dst []byte) bool {
	lo, hi := g.place, g.place+uint64(len(g.data))
	r, at := c.redirectAt(g.key, lo, hi)
	if r == nil {
		return false
	}
	c.e.Count.Traffic.PayloadReceived += hi - lo
	full := false
	for pos := lo; pos < hi; r, at = c.redirectAt(g.key, pos, hi) {
		g.copyTo(dst[pos-lo:at-lo], int(pos-lo))
		if pos = at; r == nil {
			break
		}
		end := min(r.hi, hi)
		away := c.mayRedirect(r, pos, end)
		if !away { // what has been redirected has its latest bytes there: they are copied home over what is there
			away, end = r.got.Alike(pos, end)
		}
		if away {
			g.copyTo(r.Dst[pos-r.lo:end-r.lo], int(pos-lo))
			r.got.Add(pos, end)
			c.strew(r)
			full = full || r.got.Is(r.lo, r.hi)
		} else {
			g.copyTo(dst[pos-lo:end-lo], int(pos-lo))
		}
		pos = end
	}
	if full {
		c.endRedirects(OK, func(r *redirect) bool { return r.got.Is(r.lo, r.hi) })
	}
	return true
}

// mayRedirect reports whether there is room to remember that [lo, hi) is redirected.
func (c *Conn) mayRedirect(r *redirect, lo, hi uint64) bool {
	if len(r.got.Spans) == maxRedirected && !r.got.Joins(lo, hi) {
		return false
	}
	if len(r.got.Spans) < 2 || c.userShare().User.Strewn+int(hi-lo) <= mostStrewn {
		return true
	}
	first, second := r.longest() // what joins these strews no more
	for _, i := range [2]int{first, second} {
		if s := r.got.Spans[i]; lo <= s.Hi && s.Lo <= hi {
			return true
		}
	}
	return false
}

// strew counts the bytes that are outside of the two longest spans now.
func (c *Conn) strew(r *redirect) {
	n := 0
	if len(r.got.Spans) > 2 {
		first, second := r.longest()
		for i, s := range r.got.Spans {
			if i != first && i != second {
				n += int(s.Hi - s.Lo)
			}
		}
	}
	c.userShare().User.Strewn += n - r.strewn
	r.strewn = n
}

// longest returns which of the spans are the two longest; less than 0: there is none.
func (r *redirect) longest() (first, second int) {
	first, second = -1, -1
	for i, s := range r.got.Spans {
		switch {
		case first < 0 || s.Hi-s.Lo > r.got.Spans[first].Hi-r.got.Spans[first].Lo:
			first, second = i, first
		case second < 0 || s.Hi-s.Lo > r.got.Spans[second].Hi-r.got.Spans[second].Lo:
			second = i
		}
	}
	return first, second
}

// copyTo copies the payload from its byte from on to where it belongs.
func (g *segment) copyTo(to []byte, from int) {
	first, rest := g.inOrder()
	if from < len(first) {
		n := copy(to, first[from:])
		to, from = to[n:], len(first)
	}
	copy(to, rest[from-len(first):])
}

// endRedirects ends the redirections that which chooses, with st.
func (c *Conn) endRedirects(st abi.Status, which func(*redirect) bool) {
	kept := c.recv.redirects[:0]
	for i := range c.recv.redirects {
		r := &c.recv.redirects[i]
		if !which(r) {
			kept = append(kept, *r)
			continue
		}
		r.Region.InFlight--
		c.userShare().User.Strewn -= r.strewn
		c.e.Emit(Event{Kind: EvRedirected, Conn: c.ID, Token: r.Token, Status: st, Spans: c.spansOf(r)})
	}
	clear(c.recv.redirects[len(kept):])
	if c.recv.redirects = kept; len(kept) == 0 {
		c.recv.redirects = nil
	}
}

// spansOf returns the two longest spans of what was redirected, in their order. The others are copied to where they
// would be without the redirection: exactly what is told was redirected.
func (c *Conn) spansOf(r *redirect) (out [2]Span) {
	first, second := r.longest()
	n := 0
	for i, s := range r.got.Spans {
		if i == first || i == second {
			out[n] = Span{s.Lo - r.lo, s.Hi - s.Lo}
			c.e.Count.Placing.BytesRedirected += s.Hi - s.Lo
			n++
		} else {
			copy(r.home[s.Lo-r.lo:], r.Dst[s.Lo-r.lo:s.Hi-r.lo])
		}
	}
	return out
}
