package ipc

// Each function names the fields of one struct with their offsets from the beginning of the packet, for reading and for
// writing: docs/ABI.md A5 has the same in words. A field is added at the end only, where the sizes in formats grow, or
// in reserved bytes; none is ever moved.

func helloRequest(f *body, m *Message) { // A5.1
	g := &m.Greeting
	f.u32(16, &g.Lowest)
	f.u32(20, &g.Highest)
	f.u64(24, (*uint64)(&g.Features))
	f.u64(32, (*uint64)(&g.Required))
	f.count(40, "depth", &g.Depth)
	f.count(44, "shard", &g.Shard)
	f.u16(48, &g.SQESize)
	f.u16(50, &g.CQESize)
	f.name(56, "name", &m.Name)
}

func helloReply(f *body, m *Message) { // A5.2
	g := &m.Greeting
	f.u32(16, &g.Version)
	f.count(20, "window", &g.Window)
	f.u64(24, (*uint64)(&g.Features))
	f.u32(32, &g.Rings.SQ)
	f.u32(36, &g.Rings.CQ)
	f.u16(40, &g.SQESize)
	f.u16(42, &g.CQESize)
	f.count(44, "shard", &g.Shard)
	f.name(48, "node", &g.Node)
	f.name(114, "name", &m.Name)
}

func registerRequest(f *body, m *Message) { // A5.3
	f.u64(16, &m.Size)
	f.flags(24, &m.Own, &m.Heap)
	f.u64(32, &m.Addr)
}

func registerReply(f *body, m *Message) { // A5.4
	f.u64(16, &m.Size)
	f.u32(24, &m.Region)
}

func oneRegion(f *body, m *Message) { f.u32(16, &m.Region) } // A5.5

func dialRequest(f *body, m *Message) { // A5.6
	f.nanoseconds(16, &m.Timeout)
	f.flags(24, &m.Ordered, &m.Overlap)
	f.u32(28, &m.Domain)
	f.name(32, "peer", &m.Peer)
	f.name(98, "service", &m.Service)
	f.name(164, "scheduler", &m.Scheduler)
	f.data(230, &m.Data)
}

func connected(f *body, m *Message) { // A5.7
	f.u32(16, &m.Conn)
	f.name(24, "peer", &m.Peer)
	f.data(90, &m.Data)
	f.name(608, "node", &m.Node)
}

func oneService(f *body, m *Message) { f.name(16, "service", &m.Service) } // A5.8

func acceptRequest(f *body, m *Message) { // A5.9
	f.u32(16, &m.Conn)
	f.u32(20, &m.Domain)
	f.data(24, &m.Data)
}

func refuseRequest(f *body, m *Message) { // A5.10
	f.u32(16, &m.Conn)
	f.text(24, &m.Text)
}

func exportRequest(f *body, m *Message) { // A5.11
	f.u64(16, &m.Off)
	f.u64(24, &m.Size)
	f.u32(32, &m.Conn)
	f.u32(36, &m.Region)
	f.perm(40, &m.Perm)
	f.u32(44, &m.Domain)
	f.name(48, "name", &m.Name)
	f.u64(120, &m.Base)
	f.u32(128, &m.High)
}

func exportReply(f *body, m *Message) { // A5.12
	f.u64(16, &m.Key)
	f.u64(24, &m.Size)
	f.u32(32, &m.Conn)
}

func keyOfConn(f *body, m *Message) { // A5.13
	f.u64(16, &m.Key)
	f.u32(24, &m.Conn)
}

func oneConn(f *body, m *Message) { f.u32(16, &m.Conn) } // A5.14

func oneQueue(f *body, m *Message) { f.u32(16, &m.Queue) } // A5.24

func connAndQueue(f *body, m *Message) { // A5.25
	f.u32(16, &m.Conn)
	f.u32(20, &m.Queue)
}

func incomingEvent(f *body, m *Message) { // A5.15
	f.u32(16, &m.Conn)
	f.u32(20, &m.Caller)
	f.name(24, "service", &m.Service)
	f.name(90, "peer", &m.Peer)
	f.data(156, &m.Data)
	f.name(672, "node", &m.Node)
}

func advertEvent(f *body, m *Message) { // A5.16
	f.u64(16, &m.Key)
	f.u64(24, &m.Size)
	f.u32(32, &m.Conn)
	f.perm(36, &m.Perm)
	f.u32(40, &m.Number)
	f.name(48, "name", &m.Name)
}

func endEvent(f *body, m *Message) { // A5.17
	f.u32(16, &m.Conn)
	f.u32(20, (*uint32)(&m.Code))
	f.text(24, &m.Text)
}

func failedReply(f *body, m *Message) { // A5.18
	if m.Error == nil {
		m.Error = new(Error)
	}
	f.u32(16, (*uint32)(&m.Error.Code))
	f.text(24, &m.Error.Text)
}

func mapRequest(f *body, m *Message) { // A5.19
	s := &m.Space
	f.u64(16, &m.Size)
	f.u64(24, &s.Pin)
	f.u32(32, &s.Chunk)
	f.u32(36, &s.Policy)
	f.flags(40, &s.Huge)
}

func mapReply(f *body, m *Message) { // A5.20
	f.u64(16, &m.Size)
	f.u64(24, &m.Space.Hints)
	f.u32(32, &m.Region)
	f.u32(36, &m.Space.Chunk)
}

func adviseRequest(f *body, m *Message) { // A5.21
	f.u64(16, &m.Off)
	f.u64(24, &m.Size)
	f.u32(32, &m.Region)
	f.u32(36, (*uint32)(&m.Advice))
}

func usageRequest(f *body, m *Message) { // A5.22
	f.u64(16, &m.Off)
	f.u64(24, &m.Size)
	f.u32(32, &m.Region)
}

func usageReply(f *body, m *Message) { // A5.23
	for i, v := range m.Usage.words() {
		f.u64(16+8*i, v)
	}
}
