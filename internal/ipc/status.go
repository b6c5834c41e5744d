package ipc

import "fmt"

// Status says how an operation or connection ended. Those below 200 are the engine's; the daemon adds
// those from 200 on.
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
	StatusReset
	StatusMemory   // memory that the operation uses did not become resident in time
	StatusTooLong  // the message was longer than the buffer that it met
	StatusNoBuffer // the peer had no buffer for the message, or not in time
	StatusTaken    // another redirection has part of that memory

	StatusLocal  Status = 200 // the local region is unknown, or the local range is outside it
	StatusNoConn Status = 201 // the client has no such connection
	// the clients of this user have as many operations in flight as limits.ops_per_user allows
	StatusQuota      Status = 202
	StatusMisaligned Status = 203 // an atomic's place is no multiple of its size
)

// Codes of control errors, Error.Code. Every Status has one as well, see Status.Code. On the wire they are numbers
// (docs/ABI.md A9): a Status its own, the others those of codeNumbers.
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
	StatusClosed: "closed", StatusPeerDown: "peer-down", StatusPeerUnknown: "peer-unknown",
	StatusNoService: "no-service",
	StatusRefused:   "refused", StatusLimit: CodeLimit, StatusAborted: "aborted", StatusTimeout: "timeout",
	StatusMTU: "mtu", StatusTaken: "taken",
	StatusVersion: "peer-version", StatusStranger: "stranger", StatusReset: "reset",
	StatusMemory: "memory", StatusLocal: "local",
	StatusNoConn: CodeNoConn,
	StatusQuota:  "ops-per-user", StatusMisaligned: "misaligned",
	StatusTooLong: "too-long", StatusNoBuffer: "no-buffer",
}

var codeNumbers = map[string]uint32{
	CodeInvalid: 256, CodeUnknownKind: 257, CodeMemlock: 258, CodeBusy: 259, CodeExists: 260, CodeNoRegion: 261,
	CodeDraining: 262, CodeDenied: 263, CodeVersion: 264, CodeInternal: 265,
}

var codeWords = func() map[uint32]string {
	words := map[uint32]string{}
	for word, n := range codeNumbers {
		words[n] = word
	}
	return words
}()

// codeNumber returns the number of a code, and that of CodeInternal for a word that is none. No word at all is 0.
func codeNumber(word string) uint32 {
	if word == "" {
		return 0
	}
	if n, ok := codeNumbers[word]; ok {
		return n
	}
	if s, ok := StatusFor(word); ok {
		return uint32(s)
	}
	var n uint32
	if k, err := fmt.Sscanf(word, unknownCode, &n); k == 1 && err == nil && codeWord(n) == word {
		return n
	}
	return codeNumbers[CodeInternal]
}

// codeWord is the inverse of codeNumber. Numbers of other releases keep their value.
func codeWord(n uint32) string {
	if word, ok := codeWords[n]; ok {
		return word
	}
	if word, ok := statusCode[Status(n)]; ok && n <= 255 {
		return word
	}
	return fmt.Sprintf(unknownCode, n)
}

const unknownCode = "status-%d"

// Code returns the word for s used in Error.Code and Message.Code.
func (s Status) Code() string {
	if c, ok := statusCode[s]; ok {
		return c
	}
	return fmt.Sprintf(unknownCode, uint8(s))
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
