package edge

import "testing"

// Where an event loop sleeps nobody would run the transport, so it is left to its own thread from PollFD on.
func TestEventLoopDoesNotDrive(t *testing.T) {
	p := newDuo(t, Config{}, 4096)
	p.f.setHold(true)
	defer p.f.setHold(false)
	d, transport := p.client.at.Load(), &countingDriver{}
	d.drive = transport
	defer func() { d.drive = nil }()
	look := func() int {
		before := transport.drives
		op, err := p.out.Post(NoWait, &Work{Kind: Write, Local: p.local, Len: 8, Remote: p.remote})
		must(t, err)
		p.client.Poll()
		op.Done()
		return transport.drives - before
	}
	if n := look(); n != 2 {
		t.Errorf("Poll and Done drive %d times", n)
	}
	if _, err := p.client.PollFD(); err != nil {
		t.Fatal(err)
	}
	if n := look(); n != 0 {
		t.Errorf("driven %d times beside an event loop", n)
	}
}
