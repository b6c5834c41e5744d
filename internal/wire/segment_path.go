package wire

import "multiedge/internal/frame"

// Segments about a path, a link or the session's keys (clauses 9 and 10), and padding.

func putPad(s *Segment, b []byte) []byte {
	b = append(b, byte(KindPad), 0)
	return be.AppendUint16(b, uint16(len(s.Data)))
}

func nextPad(_ *Segment, _ []byte, n int) (int, error) { return n, nil }

func putPing(_ *Segment, b []byte) []byte { return append(b, byte(KindPing), 0, 0, 0) }

func putProbe(s *Segment, b []byte) []byte {
	b = append(b, byte(KindProbe), 0, 0, 0)
	return be.AppendUint64(b, s.Place)
}

func nextProbe(s *Segment, tail []byte, _ int) (int, error) {
	s.Place = be.Uint64(tail[4:])
	return 0, nil
}

// Echo is a Probe with, on IP links, the address that the Probe came from as its data (clause 9.3).

func putEcho(s *Segment, b []byte) []byte {
	b = append(b, byte(KindEcho), 0)
	b = be.AppendUint16(b, uint16(len(s.Data)))
	return be.AppendUint64(b, s.Place)
}

func nextEcho(s *Segment, tail []byte, n int) (int, error) {
	s.Place = be.Uint64(tail[4:])
	if n != 0 && n != frame.PlaceLen4 && n != frame.PlaceLen6 {
		return 0, ErrSegment
	}
	return n, nil
}

// Link is its kind and a LinkInfo: it has neither flags nor a length.

func putLink(_ *Segment, b []byte) []byte { return append(b, byte(KindLink)) }

func nextLink(_ *Segment, tail []byte, _ int) (int, error) {
	if len(tail) < 1+LinkInfoLen {
		return 0, ErrSegment
	}
	return LinkInfoLen, (&LinkInfo{}).Decode(tail[1 : 1+LinkInfoLen])
}

func putKeys(s *Segment, b []byte) []byte {
	b = append(b, byte(KindKeys), s.Flags, 0, PublicLen)
	return be.AppendUint32(b, s.Op)
}

func nextKeys(s *Segment, tail []byte, n int) (int, error) {
	s.Op = be.Uint32(tail[4:])
	if n != PublicLen {
		return 0, ErrSegment
	}
	return n, nil
}
