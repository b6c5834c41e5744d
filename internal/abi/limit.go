package abi

// The versions of the client ABI that this release speaks (A2.2). 1 was JSON in every packet and demanded equality.
const (
	LowestVersion  = 2
	HighestVersion = 2
)

// Features is a set of what not every release of one version has (A2.4).
type Features uint64

const (
	FeatureMemory   Features = 1 << 0
	FeatureSpaces   Features = 1 << 1
	FeatureAtomics  Features = 1 << 3
	FeatureGather   Features = 1 << 4
	FeatureMessages Features = 1 << 5
	FeatureLocal    Features = 1 << 6
	FeatureRedirect Features = 1 << 7
	FeatureEager    Features = 1 << 8
	FeatureHeap     Features = 1 << 10
	FeatureDomains  Features = 1 << 11
	FeatureScatter  Features = 1 << 12
	FeatureWords    Features = 1 << 13
	FeatureOverlap  Features = 1 << 14
	FeatureEarly    Features = 1 << 16
	FeatureBytes    Features = 1 << 17
	FeatureResume   Features = 1 << 18
)

// AllFeatures is what the daemon of this release has, and ClientFeatures what package edge uses.
const (
	ClientFeatures Features = FeatureSpaces | FeatureAtomics | FeatureGather | FeatureMessages | FeatureLocal |
		FeatureRedirect | FeatureEager | FeatureHeap | FeatureScatter | FeatureOverlap | FeatureEarly |
		FeatureBytes
	AllFeatures Features = FeatureMemory | FeatureDomains | FeatureWords | FeatureResume | ClientFeatures
)

// FeatureBits has every feature.
var FeatureBits = [...]Bit{
	{uint64(FeatureMemory), "MEMORY", "EDGE_FEATURE_MEMORY", "register takes memory that the client made (A7.5)"},
	{uint64(FeatureSpaces), "SPACES", "", "map, advise, usage: regions that are pinned in part (A7.13)"},
	{uint64(FeatureAtomics), "ATOMICS", "EDGE_FEATURE_ATOMICS", "submissions of op 4 (A6.13)"},
	{uint64(FeatureGather), "GATHER", "EDGE_FEATURE_PIECES", "submissions of op 8 (A6.14)"},
	{uint64(FeatureMessages), "MESSAGES", "EDGE_FEATURE_MESSAGES",
		"ops 5 and 6, completions of kind 3, requests 24 to 26 (A7.17)"},
	{uint64(FeatureLocal), "LOCAL", "EDGE_FEATURE_LOCAL", "writes take flag bit 3 (A6.15)"},
	{uint64(FeatureRedirect), "REDIRECT", "", "ops 9 and 10 (A6.16)"},
	{uint64(FeatureEager), "EAGER", "EDGE_FEATURE_EAGER", "ops 11 to 14 (A6.17)"},
	{uint64(FeatureHeap), "HEAP", "EDGE_FEATURE_HEAP", "register takes the process's own memory, in place (A7.19)"},
	{uint64(FeatureDomains), "DOMAINS", "EDGE_FEATURE_DOMAINS",
		"memory for all connections of a domain, sends about writes (A7.20)"},
	{uint64(FeatureScatter), "SCATTER", "EDGE_FEATURE_SCATTER", "op 8 before op 6: buffers in pieces (A6.14)"},
	{uint64(FeatureWords), "WORDS", "EDGE_FEATURE_WORDS", "op 15: threads sleep on words of their own (A8.7)"},
	{uint64(FeatureOverlap), "OVERLAP", "EDGE_FEATURE_OVERLAP", "dial takes flag bit 1 (A5.6)"},
	{uint64(FeatureEarly), "EARLY", "EDGE_FEATURE_EARLY", "receive and join before accept (A7.17)"},
	{uint64(FeatureBytes), "BYTES", "EDGE_FEATURE_BYTES", "submissions of op 16: more than 24 bytes inline (A6.19)"},
	{uint64(FeatureResume), "RESUME", "EDGE_FEATURE_RESUME",
		"op 17: operations behind one beyond limits.ops_per_user are refused, too (A7.20)"},
}

// Limits that both sides of the rings and the control socket keep. Sizes are in bytes.
const (
	SQESize = 64 // A6.6
	CQESize = 32 // A6.11

	MinDepth = 8       // operations in flight (A5.1)
	MaxDepth = 1 << 16 // the same
	// NotifyCredit is the number of notifications the daemon may deliver on one connection before the client returns
	// credit by an OpCredit entry. It bounds what a client must remember for a connection that nobody reads.
	NotifyCredit = 256

	MaxInline = 24 // that a submission carries by value (A6.6)
	// MaxBytes is how many an operation carries by value (A6.19): BytesPerEntry in each of the entries OpBytes before
	// it, and the last in its own.
	MaxBytes      = 1024
	BytesPerEntry = 56
	BytesEntries  = 1 + (MaxBytes-MaxInline+BytesPerEntry-1)/BytesPerEntry // of the longest
	// MaxPieces is how many pieces of local memory an operation can have (A6.14): up to MaxPieces-1 of entries OpPieces
	// before it, each with up to PiecesPerEntry, and its own, the last.
	MaxPieces      = 16
	PiecesPerEntry = 3
	// MaxEntries is how many entries an operation in pieces takes at most.
	MaxEntries = 1 + (MaxPieces-1+PiecesPerEntry-1)/PiecesPerEntry

	Words = 64 // on which threads of a client can sleep (A8.7)

	MaxEager = 64 << 10 // of a composed message (A6.17)
	MaxSend  = 1 << 31  // of a message (A7.17)

	// MaxMessage is the largest control packet. Larger answers are split in pages.
	MaxMessage = 64 << 10
	MaxName    = 64  // of nodes, services, exports, schedulers (A3.7)
	MaxData    = 512 // of private data of dial and accept
	MaxText    = 1024
)

// Limit is a limit in the register.
type Limit struct {
	C      string // in abi_const.h, after ABI_
	Public string // constant of edge.h; empty: it has none
	Value  uint64
	Text   string
}

// Limits has those that other clients and the documents name (A10.1).
var Limits = [...]Limit{
	{"VERSION", "", HighestVersion, "version of the client ABI"},
	{"SQE_SIZE", "", SQESize, "bytes of a submission"},
	{"CQE_SIZE", "", CQESize, "bytes of a completion"},
	{"MIN_DEPTH", "", MinDepth, "operations in flight, at least"},
	{"MAX_DEPTH", "", MaxDepth, "operations in flight, at most"},
	{"CREDIT", "", NotifyCredit, "notifications of a connection without credit"},
	{"INLINE", "", MaxInline, "bytes inline in a submission"},
	{"BYTES", "EDGE_MAX_INLINE", MaxBytes, "bytes inline of an operation, with op 16"},
	{"BYTES_IN_ENTRY", "", BytesPerEntry, "of them in an entry of op 16"},
	{"PIECES", "EDGE_MAX_PIECES", MaxPieces, "pieces of local memory of an operation"},
	{"IN_ENTRY", "", PiecesPerEntry, "pieces in an entry of op 8"},
	{"WORDS", "", Words, "words on which threads sleep"},
	{"MAX_EAGER", "EDGE_MAX_EAGER", MaxEager, "bytes of a composed message"},
	{"MAX_SEND", "EDGE_MAX_MESSAGE", MaxSend, "bytes of a message"},
	{"MAX_PACKET", "", MaxMessage, "bytes of a control packet"},
	{"STR", "", MaxName, "bytes of a str"},
	{"DATA", "", MaxData, "bytes of a data"},
	{"TEXT", "", MaxText, "bytes of a text"},
}
