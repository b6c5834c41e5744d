package ipc

import "fmt"

// Status says how an operation or connection ended. The numbers up to StatusStranger are the engine's; the daemon adds those from 200 on.
type Status uint8

const (
	StatusOK Status = iota
	StatusKey
	StatusOwner
	StatusPermission
	StatusBounds
	StatusClosed
	StatusPeerDown
	StatusPeerUnknown
	StatusNoService
	StatusRefused
	StatusLimit
	StatusAborted
	StatusTimeout
	StatusMTU
	StatusVersion
	StatusStranger

	StatusLocal  Status = 200 // the local region is unknown, or the local range is outside it
	StatusNoConn Status = 201 // the client has no such connection
	StatusQuota  Status = 202 // the clients of this user have as many operations in flight as limits.ops_per_user allows
)

// Codes of control errors, Error.Code. Every Status has one as well, see Status.Code.
const (
	CodeInvalid     = "invalid"      // the request makes no sense; Text says which field
	CodeUnknownKind = "unknown-kind" // no such request
	CodeMemlock     = "memlock"      // memory cannot be pinned; Text has the remedy
	CodeBusy        = "busy"         // operations in flight use it
	CodeLimit       = "limit"        // a quota is reached
	CodeExists      = "exists"       // the name is taken
	CodeNoRegion    = "no-region"
	CodeNoConn      = "no-connection"
	CodeDraining    = "draining" // the daemon is going down and takes nothing new
	CodeDenied      = "denied"   // the user may not do this
	CodeVersion     = "version"
	CodeInternal    = "internal"
)

var statusCode = map[Status]string{
	StatusOK: "ok", StatusKey: "key", StatusOwner: "owner", StatusPermission: "permission", StatusBounds: "bounds",
	StatusClosed: "closed", StatusPeerDown: "peer-down", StatusPeerUnknown: "peer-unknown", StatusNoService: "no-service",
	StatusRefused: "refused", StatusLimit: CodeLimit, StatusAborted: "aborted", StatusTimeout: "timeout", StatusMTU: "mtu",
	StatusVersion: "peer-version", StatusStranger: "stranger", StatusLocal: "local", StatusNoConn: CodeNoConn,
	StatusQuota: "ops-per-user",
}

// Code returns the word for s used in Error.Code and Message.Code.
func (s Status) Code() string {
	if c, ok := statusCode[s]; ok {
		return c
	}
	return fmt.Sprintf("status-%d", uint8(s))
}

func (s Status) String() string { return s.Code() }

// StatusFor is the inverse of Code; ok is false for words that name no Status.
func StatusFor(code string) (s Status, ok bool) {
	for s, c := range statusCode {
		if c == code {
			return s, true
		}
	}
	return 0, false
}
