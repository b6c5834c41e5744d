package abi

import "fmt"

// Status says how an operation or a connection ended. Zero is success. It is the part of Code that fits in a completion
// (A6.11) and in a segment (clause 6.10).
type Status uint8

// Those below 200 come from an engine: of this node, or of a peer. Those from 200 on come from the daemon alone.
const (
	StatusOK          Status = 0
	StatusKey         Status = 1
	StatusOwner       Status = 2
	StatusPermission  Status = 3
	StatusBounds      Status = 4
	StatusClosed      Status = 5
	StatusPeerDown    Status = 6
	StatusPeerUnknown Status = 7
	StatusNoService   Status = 8
	StatusRefused     Status = 9
	StatusLimit       Status = 10
	StatusAborted     Status = 11
	StatusTimeout     Status = 12
	StatusMTU         Status = 13
	StatusVersion     Status = 14
	StatusStranger    Status = 15
	StatusReset       Status = 16
	StatusMemory      Status = 17
	StatusTooLong     Status = 18
	StatusNoBuffer    Status = 19
	StatusTaken       Status = 20
	StatusStopped     Status = 21

	StatusLocal      Status = 200
	StatusNoConn     Status = 201
	StatusQuota      Status = 202
	StatusMisaligned Status = 203
)

// FirstLocal is the first status that never comes from a peer.
const FirstLocal Status = StatusLocal

// Code says why a request failed or a connection ended (A9). Each Status is a Code; those from 256 on belong to
// requests alone.
type Code uint32

const (
	CodeInvalid     Code = 256
	CodeUnknownKind Code = 257
	CodeMemlock     Code = 258
	CodeBusy        Code = 259
	CodeExists      Code = 260
	CodeNoRegion    Code = 261
	CodeDraining    Code = 262
	CodeDenied      Code = 263
	CodeVersion     Code = 264
	CodeInternal    Code = 265

	CodeLimit  Code = Code(StatusLimit)
	CodeNoConn Code = Code(StatusNoConn)
)

// StatusInfo is what the register knows of a Code.
type StatusInfo struct {
	Code Code
	Word string // for scripts
	Text string // for people: what happened
	Sent string // which segments carry it to a peer (clause 6.10); empty: none
	// Programs get the error of this one; zero: its own, which has the following
	Like  Code
	C     string // name in edge.h, after EDGE_ERR_
	Errno string // the nearest errno of sockets
	Also  string // name in edge.h of the more general error that it is, too
	Help  string // what happened; what to do
}

// String returns the text for people.
func (s Status) String() string {
	if i := statusAt[s]; i != 0 || s == StatusOK {
		return Statuses[i].Text
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// Code returns s as a code.
func (s Status) Code() Code { return Code(s) }

// String returns the word.
func (c Code) String() string {
	if i := c.Info(); i != nil {
		return i.Word
	}
	return fmt.Sprintf("status-%d", uint32(c))
}

// Info returns the entry of the register, nil for a number of another release.
func (c Code) Info() *StatusInfo {
	for i := range Statuses {
		if Statuses[i].Code == c {
			return &Statuses[i]
		}
	}
	return nil
}

// Error returns the code whose error programs get for c.
func (c Code) Error() Code {
	if i := c.Info(); i != nil && i.Like != 0 {
		return i.Like
	}
	return c
}

// statusAt finds the entry of a status without a search.
var statusAt = func() (at [256]uint8) {
	for i := range Statuses {
		if c := Statuses[i].Code; c < 256 {
			at[c] = uint8(i)
		}
	}
	return at
}()
