package workload

// A notification's immediate: what it means in the upper bits, a value in the lower.
const (
	immBits = 28
	immMask = 1<<immBits - 1

	immControl = 1 << immBits // a control message of value bytes lies in the control region
	immMessage = 2 << immBits // message number value (its lower bits) is complete in the data region
	immCredit  = 3 << immBits // the receiver has verified all messages below value (its lower bits)
	immEnd     = 4 << immBits // all messages were sent; their number lies in the control region
	immEndAck  = 5 << immBits // all messages are here
	immGo      = 6 << immBits // the client begins: a server that sends begins as well
)

// split takes an immediate apart.
func split(imm uint32) (kind uint32, value uint64) { return imm &^ immMask, uint64(imm & immMask) }

// advance returns base moved up to the number whose lower immBits are low, if that is ahead of it; old news leave base
// alone.
func advance(base, low uint64) uint64 {
	if ahead := (low - base) & immMask; ahead < 1<<(immBits-1) {
		return base + ahead
	}
	return base
}
