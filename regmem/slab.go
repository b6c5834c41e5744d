package regmem

// grant is one exported range as the table keeps it: 64 bytes without a pointer, so that a million of them cost the
// garbage collector nothing and those that rest cost their bytes alone (DHL §IV: tables are large, what is in use is
// not).
type grant struct {
	key    Key
	owner  uint64
	off, n uint64 // of the region's bytes
	region uint32 // its place in Table.regions
	number uint32 // the holder's own: SetNumber
	perm   Perm
	high   uint32 // of a grant to a domain: the upper half of the address it begins at; the lower one is number

	byRegion, byOwner link
}

// ref names a grant in its slab; zero names none.
type ref uint32

const (
	slabBits  = 8
	slabChunk = 1 << slabBits // grants of a chunk: 16 KiB
)

// slab holds grants by ref. They do not move, and grow by a chunk at a time. All chunks go when the last grant goes.
type slab struct {
	chunks []*[slabChunk]grant
	free   ref // freed ones, linked by byRegion.next
	used   ref // handed out so far; a ref is a place plus one
	n      int
}

func (s *slab) at(r ref) *grant { return &s.chunks[(r-1)>>slabBits][(r-1)&(slabChunk-1)] }

// take returns a cleared grant.
func (s *slab) take() (ref, *grant) {
	s.n++
	if r := s.free; r != 0 {
		g := s.at(r)
		s.free, *g = g.byRegion.next, grant{}
		return r, g
	}
	if int(s.used)>>slabBits == len(s.chunks) {
		s.chunks = append(s.chunks, new([slabChunk]grant))
	}
	s.used++
	return s.used, s.at(s.used)
}

func (s *slab) give(r ref) {
	if s.n--; s.n == 0 {
		*s = slab{}
		return
	}
	*s.at(r) = grant{byRegion: link{next: s.free}}
	s.free = r
}

// link is a grant's place on a list. Grants are on two lists, their region's and their owner's, so that ending either
// costs as much as it has grants, not as many as there are.
type link struct{ prev, next ref }

// list is a list of grants, oldest first. which says by which of their links they are on it.
type list struct {
	first, last ref
	n           uint32
}

type which func(*grant) *link

func byRegion(g *grant) *link { return &g.byRegion }
func byOwner(g *grant) *link  { return &g.byOwner }

// push appends r to l.
func (s *slab) push(l *list, r ref, w which) {
	*w(s.at(r)) = link{prev: l.last}
	if l.last != 0 {
		w(s.at(l.last)).next = r
	} else {
		l.first = r
	}
	l.last = r
	l.n++
}

// unlink takes r out of l.
func (s *slab) unlink(l *list, r ref, w which) {
	at := *w(s.at(r))
	if at.prev != 0 {
		w(s.at(at.prev)).next = at.next
	} else {
		l.first = at.next
	}
	if at.next != 0 {
		w(s.at(at.next)).prev = at.prev
	} else {
		l.last = at.prev
	}
	l.n--
}
