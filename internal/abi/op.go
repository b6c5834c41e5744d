package abi

import (
	"fmt"
	"strings"
)

// Op is what a submission asks for (A6.6). OpWrite, OpRead, OpAtomic, OpSend and OpTell are operations of the engine,
// too.
type Op uint8

const (
	OpWrite       Op = 1
	OpRead        Op = 2
	OpCredit      Op = 3
	OpAtomic      Op = 4
	OpSend        Op = 5
	OpReceive     Op = 6
	OpTell        Op = 7
	OpPieces      Op = 8
	OpRedirect    Op = 9
	OpEndRedirect Op = 10
	OpCompose     Op = 11
	OpWrote       Op = 12
	OpCommit      Op = 13
	OpDiscard     Op = 14
	OpAim         Op = 15
	OpBytes       Op = 16
	OpResume      Op = 17

	opNumbers = 18 // more than the largest
)

// OpInfo is what the register knows of an operation.
type OpInfo struct {
	Op      Op
	Word    string
	Feature Features // without it in force nobody may submit it
	C       string   // constant of edge.h; empty: it has none
	Text    string
}

// Ops has every operation, in the order of numbers.
var Ops = [...]OpInfo{
	{OpWrite, "write", 0, "EDGE_WRITE", "local memory, or inline bytes, to remote memory"},
	{OpRead, "read", 0, "EDGE_READ", "remote memory to local memory"},
	{OpCredit, "credit", 0, "", "`imm` notifications of the connection were consumed (A7.11); no completion"},
	{OpAtomic, "atomic", FeatureAtomics, "EDGE_ATOMIC", "a value of remote memory is changed and comes back (A6.13)"},
	{OpSend, "send", FeatureMessages, "EDGE_SEND",
		"local memory, or inline bytes, to the oldest buffer of the peer (A7.17)"},
	{OpReceive, "receive", FeatureMessages, "EDGE_RECEIVE",
		"a buffer for messages of the connection, or of a receive queue (A7.17)"},
	{OpTell, "tell", FeatureDomains, "EDGE_TELL",
		"a message about a write of `length` bytes before it (A6.18)"},
	{OpPieces, "pieces", FeatureGather, "", "local memory that the next operation begins with (A6.14); no completion"},
	{OpRedirect, "redirect", FeatureRedirect, "",
		"what arrives for part of an export goes to local memory (A6.16)"},
	{OpEndRedirect, "end-redirect", FeatureRedirect, "",
		"ends the redirection with that token (A6.16); no completion"},
	{OpCompose, "compose", FeatureEager, "", "local memory is a message that is being composed (A6.17)"},
	{OpWrote, "wrote", FeatureEager, "", "part of that message is written (A6.17); no completion"},
	{OpCommit, "commit", FeatureEager, "", "its first bytes are an operation (A6.17); no completion of its own"},
	{OpDiscard, "discard", FeatureEager, "", "it is dropped (A6.17); no completion of its own"},
	{OpAim, "aim", FeatureWords, "", "events of the connection wake the thread on word `imm` (A8.7); no completion"},
	{OpBytes, "bytes", FeatureBytes, "", "inline bytes that the next operation begins with (A6.19); no completion"},
	{OpResume, "resume", FeatureResume, "",
		"operations of the connection are no longer refused (A7.20); no completion"},
}

var opFeature = func() (t [opNumbers]Features) {
	for _, o := range Ops {
		t[o.Op] = o.Feature
	}
	return t
}()

// Feature is the feature that an operation belongs to (A2.4); zero: every daemon has it, or it is none.
func (o Op) Feature() Features {
	if o < opNumbers {
		return opFeature[o]
	}
	return 0
}

// Message reports whether an operation is a message: it has a number among messages, and uses up a buffer of the peer's
// (PROTOCOL clause 14).
func (o Op) Message() bool { return o == OpSend || o == OpTell }

func (o Op) String() string {
	for i := range Ops {
		if Ops[i].Op == o {
			return Ops[i].Word
		}
	}
	return fmt.Sprintf("operation %d", uint8(o))
}

// Flags modify an operation; each is orthogonal to the others (paper §2.1.1, §2.5.1).
type Flags uint8

const (
	FlagBackwardFence Flags = 1 << 0 // apply after every earlier operation of the connection
	FlagForwardFence  Flags = 1 << 1 // later operations apply after this one
	FlagNotify        Flags = 1 << 2 // tell the destination's owner, with Imm, once applied; of a send: it has an Imm
	FlagLocal         Flags = 1 << 3 // of a write: complete once its local bytes may change (A6.15)

	FlagsAll Flags = FlagBackwardFence | FlagForwardFence | FlagNotify | FlagLocal
)

// Bit is what the register knows of a flag, a feature or a permission.
type Bit struct {
	Bits uint64
	Word string
	C    string // constant of edge.h; empty: it has none
	Text string
}

// FlagBits has every flag.
var FlagBits = [...]Bit{
	{uint64(FlagBackwardFence), "backward-fence", "EDGE_BACKWARD_FENCE",
		"takes effect after all earlier operations of the connection"},
	{uint64(FlagForwardFence), "forward-fence", "EDGE_FORWARD_FENCE", "takes effect before all later ones"},
	{uint64(FlagNotify), "notify", "EDGE_NOTIFY",
		"the peer is notified (not with read); of a send: the message has an immediate"},
	{uint64(FlagLocal), "local", "EDGE_LOCAL_DONE",
		"local completion (A6.15; write only, with feature LOCAL)"},
}

// Completion is what an entry of the completion ring tells (A6.11).
type Completion uint8

const (
	CQComplete   Completion = 1
	CQNotify     Completion = 2
	CQReceive    Completion = 3
	CQLate       Completion = 9
	CQRedirected Completion = 10
)

// CompletionInfo is what the register knows of a Completion.
type CompletionInfo struct {
	Kind Completion
	Word string
	Text string
}

// Completions has every kind of entry.
var Completions = [...]CompletionInfo{
	{CQComplete, "completion", "an operation ended"},
	{CQNotify, "notification", "a write with notify was applied to the client's memory"},
	{CQReceive, "received", "a posted buffer is the client's again, with a message if the status is 0 (A7.17)"},
	{CQLate, "late", "a write failed that had completed locally (A6.15)"},
	{CQRedirected, "redirected", "a redirection ended (A6.16)"},
}

// AtomicFunc is what an atomic does to the value at its place (clause 13.2).
type AtomicFunc uint8

const (
	AtomicSwap      AtomicFunc = 1
	AtomicCAS       AtomicFunc = 2
	AtomicAdd       AtomicFunc = 3
	AtomicAnd       AtomicFunc = 4
	AtomicOr        AtomicFunc = 5
	AtomicXor       AtomicFunc = 6
	AtomicMin       AtomicFunc = 7
	AtomicMax       AtomicFunc = 8
	AtomicMinSigned AtomicFunc = 9
	AtomicMaxSigned AtomicFunc = 10
)

// AtomicInfo is what the register knows of a function.
type AtomicInfo struct {
	Func AtomicFunc
	Word string
	C    string // constant of edge.h
	Text string // what it stores, of the value v and the operand x
}

// Atomics has every function, numbered from 1 without a gap.
var Atomics = [...]AtomicInfo{
	{AtomicSwap, "swap", "EDGE_SWAP", "x"},
	{AtomicCAS, "compare-and-swap", "EDGE_COMPARE_SWAP", "x if v equals the second operand, else nothing"},
	{AtomicAdd, "add", "EDGE_FETCH_ADD", "v + x, modulo 2 to the power of the bits"},
	{AtomicAnd, "and", "EDGE_FETCH_AND", "v and x, bit by bit"},
	{AtomicOr, "or", "EDGE_FETCH_OR", "v or x, bit by bit"},
	{AtomicXor, "xor", "EDGE_FETCH_XOR", "v exclusive or x, bit by bit"},
	{AtomicMin, "min", "EDGE_FETCH_MIN", "the lesser, as unsigned numbers"},
	{AtomicMax, "max", "EDGE_FETCH_MAX", "the greater, as unsigned numbers"},
	{AtomicMinSigned, "signed-min", "EDGE_FETCH_MIN_SIGNED", "the lesser, in two's complement"},
	{AtomicMaxSigned, "signed-max", "EDGE_FETCH_MAX_SIGNED", "the greater, in two's complement"},
}

// Known reports whether there is such a function.
func (f AtomicFunc) Known() bool { return f >= AtomicSwap && f <= AtomicMaxSigned }

func (f AtomicFunc) String() string {
	if !f.Known() {
		return fmt.Sprintf("function-%d", uint8(f))
	}
	return Atomics[f-AtomicSwap].Word
}

// Perm is a set of what a peer may do with exported memory (A5.11, clause 3.4).
type Perm uint8

const (
	RemoteRead   Perm = 1 << 0 // the peer may fetch the bytes
	RemoteWrite  Perm = 1 << 1 // the peer may store to the bytes
	RemoteAtomic Perm = 1 << 2 // the peer may perform atomics on the bytes, which fetch and store

	PermAll Perm = RemoteRead | RemoteWrite | RemoteAtomic
)

// PermBits has every permission.
var PermBits = [...]Bit{
	{uint64(RemoteRead), "read", "EDGE_REMOTE_READ", "the peer may read"},
	{uint64(RemoteWrite), "write", "EDGE_REMOTE_WRITE", "the peer may write"},
	{uint64(RemoteAtomic), "atomic", "EDGE_REMOTE_ATOMIC",
		"the peer may perform atomics, and `off` is a multiple of 8"},
}

func (p Perm) String() string {
	switch {
	case p == 0:
		return "none"
	case p&^PermAll != 0:
		return fmt.Sprintf("invalid(%#x)", uint8(p))
	}
	var words []string
	for _, b := range PermBits {
		if uint64(p)&b.Bits != 0 {
			words = append(words, b.Word)
		}
	}
	return strings.Join(words, "+")
}
