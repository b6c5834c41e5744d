package ipc

import (
	"encoding/binary"
	"errors"
	"testing"
)

func theAtomic() SQE {
	e := SQE{Flags: FlagBackwardFence, Conn: 1, Imm: 2, Token: 3, Key: 4, RemoteOff: 8}
	e.SetAtomic(AtomicCAS, 8, 5, 6)
	return e
}

func thePieces(n int) SQE {
	e := SQE{Op: OpPieces, InlineLen: uint8(n), Conn: 7}
	for i := range n {
		e.Pieces[i] = Piece{Region: uint32(i + 1), Len: uint32(100 * i), Off: uint64(i)}
	}
	return e
}

func theBytes(n int) SQE {
	e := SQE{Op: OpBytes, InlineLen: uint8(n), Conn: 7}
	for i := range n {
		e.Inline[i] = byte(i + 1)
	}
	return e
}

// theTell has each of its fields.
func theTell() SQE {
	return SQE{Op: OpTell, Flags: FlagBackwardFence | FlagForwardFence | FlagNotify, Conn: 1, Imm: 2, Token: 3,
		RemoteOff: 4, Len: MaxSend}
}

// theAim is of the last word.
func theAim() SQE { return SQE{Op: OpAim, Conn: 1, Imm: Words} }

func theResume() SQE { return SQE{Op: OpResume, Conn: 1} }

// theEager is one entry of each operation of composed messages.
func theEager() []SQE {
	return []SQE{
		{Op: OpCompose, Conn: 1, Token: 2, Key: 3, RemoteOff: 4, Region: 5, LocalOff: 6, Len: 7},
		{Op: OpWrote, Conn: 1, Token: 2, LocalOff: 3, Len: 4},
		{Op: OpCommit, Flags: FlagBackwardFence | FlagForwardFence | FlagNotify, Conn: 1, Imm: 2, Token: 3, Len: 4},
		{Op: OpDiscard, Conn: 1, Token: 2},
	}
}

// A6.13, A6.14 and A6.17 to A6.19: entries come as they went, whatever the place of the ring had before.
func TestFeatureEntries(t *testing.T) {
	got := SQE{Op: OpWrite, InlineLen: 3, Token: 9, Pieces: [PiecesPerEntry]Piece{{9, 9, 9}, {9, 9, 9}, {9, 9, 9}}}
	for _, e := range []SQE{thePieces(1), theBytes(BytesPerEntry), thePieces(2), theBytes(1), thePieces(3),
		{Op: OpWrite, InlineLen: 2, Inline: [BytesPerEntry]byte{1, 2}}} {
		if e.Op == OpWrite { // whose place has pieces no more
			got.Pieces = [PiecesPerEntry]Piece{}
		}
		var b [SQESize]byte
		EncodeSQE(b[:], &e)
		if err := DecodeSQE(b[:], &got); err != nil || got != e {
			t.Errorf("sent %+v, got %+v, %v", e, got, err)
		}
	}
	for _, e := range append(theEager(), theTell(), theAim(), theResume()) {
		var b [SQESize]byte
		EncodeSQE(b[:], &e)
		got = SQE{}
		if err := DecodeSQE(b[:], &got); err != nil || got != e {
			t.Errorf("sent %+v, got %+v, %v", e, got, err)
		}
	}
	e := theAtomic()
	var b [SQESize]byte
	EncodeSQE(b[:], &e)
	got = SQE{}
	if err := DecodeSQE(b[:], &got); err != nil || got != e || e.AtomicSize() != 8 {
		t.Errorf("sent %+v, got %+v, %v", e, got, err)
	}
}

// A6.7: malformed entries of features, and good ones of features that are not in force.
func TestFeatureEntriesRefused(t *testing.T) {
	atomic, pieces, eager, tell, aim := theAtomic(), thePieces(2), theEager(), theTell(), theAim()
	bytes, resume := theBytes(2), theResume()
	compose, wrote, commit, discard := &eager[0], &eager[1], &eager[2], &eager[3]
	for name, c := range map[string]struct {
		e *SQE
		f func(b []byte)
	}{
		"no function":               {&atomic, func(b []byte) { b[40] = 0 }},
		"unknown function":          {&atomic, func(b []byte) { b[40] = 11 }},
		"2 bytes":                   {&atomic, func(b []byte) { b[41] = 2 }},
		"16 bytes":                  {&atomic, func(b []byte) { b[41] = 16 }},
		"reserved of an atomic":     {&atomic, func(b []byte) { b[42] = 1 }},
		"addition that compares":    {&atomic, func(b []byte) { b[40] = byte(AtomicAdd) }},
		"atomic of a local range":   {&atomic, func(b []byte) { b[2] = 0 }},
		"atomic of a shorter value": {&atomic, func(b []byte) { b[2] = 8 }},
		"atomic, unknown flag":      {&atomic, func(b []byte) { b[1] = 8 }},
		"no piece":                  {&pieces, func(b []byte) { b[2] = 0 }},
		"four pieces":               {&pieces, func(b []byte) { b[2] = 4 }},
		"more than the count says":  {&pieces, func(b []byte) { b[2] = 1 }},
		"pieces with flags":         {&pieces, func(b []byte) { b[1] = 1 }},
		"pieces with a token":       {&pieces, func(b []byte) { b[8] = 1 }},
		"reserved of pieces":        {&pieces, func(b []byte) { b[3] = 1 }},
		"compose with flags":        {compose, func(b []byte) { b[1] = byte(FlagNotify) }},
		"compose inline":            {compose, func(b []byte) { b[2] = 1 }},
		"compose, immediate":        {compose, func(b []byte) { b[8] = 1 }},
		"compose of what wraps":     {compose, func(b []byte) { b[55], b[63] = 0xff, 0xff }},
		"wrote with a region":       {wrote, func(b []byte) { b[40] = 1 }},
		"wrote with a key":          {wrote, func(b []byte) { b[24] = 1 }},
		"wrote that wraps":          {wrote, func(b []byte) { b[55], b[63] = 0xff, 0xff }},
		"commit, local":             {commit, func(b []byte) { b[1] = byte(FlagLocal) }},
		"commit, unknown flag":      {commit, func(b []byte) { b[1] = 16 }},
		"commit with an offset":     {commit, func(b []byte) { b[48] = 1 }},
		"discard of a range":        {discard, func(b []byte) { b[56] = 1 }},
		"discard with flags":        {discard, func(b []byte) { b[1] = 1 }},
		"tell without notify":       {&tell, func(b []byte) { b[1] = 0 }},
		"tell, local":               {&tell, func(b []byte) { b[1] |= byte(FlagLocal) }},
		"tell, unknown flag":        {&tell, func(b []byte) { b[1] |= 16 }},
		"tell inline":               {&tell, func(b []byte) { b[2] = 1 }},
		"tell with a key":           {&tell, func(b []byte) { b[24] = 1 }},
		"tell with a region":        {&tell, func(b []byte) { b[40] = 1 }},
		"tell with a local offset":  {&tell, func(b []byte) { b[48] = 1 }},
		"tell of more than 2 GiB":   {&tell, func(b []byte) { b[56] = 1 }},
		"aim at no word":            {&aim, func(b []byte) { b[8] = Words + 1 }},
		"aim with flags":            {&aim, func(b []byte) { b[1] = 1 }},
		"aim inline":                {&aim, func(b []byte) { b[2] = 1 }},
		"aim with a token":          {&aim, func(b []byte) { b[16] = 1 }},
		"aim with a region":         {&aim, func(b []byte) { b[40] = 1 }},
		"a piece that wraps":        {&pieces, func(b []byte) { binary.LittleEndian.PutUint64(b[40:], ^uint64(99)) }},
	} {
		var b [SQESize]byte
		EncodeSQE(b[:], c.e)
		if name == "a piece that wraps" {
			binary.LittleEndian.PutUint32(b[36:], 101)
		}
		c.f(b[:])
		var e SQE
		if err := DecodeSQE(b[:], &e); err != ErrEntry {
			t.Errorf("%s: error %v", name, err)
		}
	}
	for _, e := range []*SQE{&atomic, &pieces, &tell, &aim, &bytes, &resume, compose, wrote, commit, discard} {
		for _, f := range []Features{0, FeatureMemory, FeatureAtomics, FeatureGather, FeatureEager, FeatureDomains,
			FeatureWords, FeatureBytes, FeatureResume, AllFeatures} {
			r := newRings(t, 8)
			r.Allow(f)
			sp, sc := r.SubmitProducer(), r.SubmitConsumer()
			sp.Put(e)
			sp.Publish()
			_, err := sc.Drain(make([]SQE, 1))
			if want := f&e.Op.Feature() == 0; errors.Is(err, ErrEntry) != want {
				t.Errorf("operation %d with features %#x: error %v", e.Op, f, err)
			}
		}
	}
}

// A6.7: the same of bytes, and of what ends a refusal.
func TestBytesRefused(t *testing.T) {
	bytes, resume := theBytes(2), theResume()
	for name, c := range map[string]struct {
		e *SQE
		f func(b []byte)
	}{
		"resume with flags":       {&resume, func(b []byte) { b[1] = 1 }},
		"resume with a token":     {&resume, func(b []byte) { b[16] = 1 }},
		"resume with a length":    {&resume, func(b []byte) { b[56] = 1 }},
		"no byte":                 {&bytes, func(b []byte) { b[2] = 0 }},
		"57 bytes":                {&bytes, func(b []byte) { b[2] = BytesPerEntry + 1 }},
		"a byte beyond the count": {&bytes, func(b []byte) { b[2] = 1 }},
		"the last, beyond it":     {&bytes, func(b []byte) { b[63] = 1 }},
		"bytes with flags":        {&bytes, func(b []byte) { b[1] = 1 }},
		"reserved of bytes":       {&bytes, func(b []byte) { b[3] = 1 }},
	} {
		var b [SQESize]byte
		EncodeSQE(b[:], c.e)
		c.f(b[:])
		var e SQE
		if err := DecodeSQE(b[:], &e); err != ErrEntry {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// Who needs several places at once does not go by an old look at the ring that shows fewer.
func TestRoomForSeveral(t *testing.T) {
	r := newRings(t, 8)
	sp, sc := r.SubmitProducer(), r.SubmitConsumer()
	for range 7 {
		sp.Put(&SQE{Op: OpWrite})
	}
	sp.Publish()
	if n, err := sp.RoomFor(MaxEntries); n != 1 || err != nil {
		t.Fatalf("room %d, %v", n, err)
	}
	sc.Drain(make([]SQE, 7))
	if n, err := sp.RoomFor(MaxEntries); n != 8 || err != nil {
		t.Errorf("room %d, %v once all were taken", n, err)
	}
}
