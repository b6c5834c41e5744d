package engine

// A Placer copies payloads into place while the endpoint goes on with the frames behind them: the part of receiving that a second core can do for one
// connection, since the bookkeeping of a session belongs to one thread.
//
// A payload may be copied late because nobody looks at the memory of an operation before it is whole: the endpoint waits for the Placer before it
// applies or completes an operation, hence before anything behind a fence, and its owner waits (Placed) before acting on events, sending, or giving
// received frames back to their driver.
type Placer interface {
	// Place copies src to dst, now or until Wait. Both belong to the Placer meanwhile.
	Place(dst, src []byte)
	// Wait returns when everything placed is in place.
	Wait()
}

// Placed returns when every payload of the frames handled so far is in place. Without Config.Placer it always is.
func (e *Endpoint) Placed() {
	if p := e.cfg.Placer; p != nil {
		p.Wait()
	}
}
