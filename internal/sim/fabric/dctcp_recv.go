package fabric

// model is hosts that run the model of DCTCP.
type model struct {
	n       *Net
	streams []*stream // by channel
	form    Packets
}

// modelHost is one of them. Its streams take turns.
type modelHost struct {
	m     *model
	index int32
	queue []*stream // that may have something to send
	in    uint64    // bytes of flows that arrived
}

// receiver is the other end of a stream.
type receiver struct {
	upto  int32              // all packets before have arrived
	early map[int32]struct{} // further ones that have
	flows []*Flow            // that have not arrived whole
}

// ackSize is what an acknowledgement takes of a link: the shortest frame, preamble and gap.
const ackSize = 64 + 20

func newModel(n *Net) *model {
	m := &model{n: n, form: TCPPackets(n.opt.MTU)}
	var hosts []*modelHost
	for i := range n.opt.Hosts {
		h := &modelHost{m: m, index: int32(i)}
		hosts = append(hosts, h)
		n.hosts = append(n.hosts, h)
	}
	for i, c := range n.opt.Channels {
		s := &stream{m: m, index: int32(i), from: hosts[c.From], to: int32(c.To), window: startWindow,
			threshold: 1 << 30, alpha: 1, due: never, alarm: never, order: 1}
		s.hash = [2]uint64{n.flowHash(int32(c.From), s.to, uint64(i), 0), n.flowHash(s.to, int32(c.From), 0, uint64(i))}
		m.streams = append(m.streams, s)
	}
	return m
}

// packets is how many packets a flow has.
func (m *model) packets(f *Flow) int32 { return int32((f.Size + m.form.Payload - 1) / m.form.Payload) }

// payload is how many bytes of a flow a packet of its stream has.
func (m *model) payload(f *Flow, num int32) int {
	return min(m.form.Payload, f.Size-int(num-f.first)*m.form.Payload)
}

func (m *model) expired(stream int32) { m.streams[stream].expired() }

// begin implements host.
func (h *modelHost) begin(f *Flow) {
	s := h.m.streams[f.Channel]
	f.first = s.end
	s.end += h.m.packets(f)
	s.flows = append(s.flows, f)
	s.recv.flows = append(s.recv.flows, f)
	h.offer(s)
}

// offer has a stream take part in the turns, if it may send.
func (h *modelHost) offer(s *stream) {
	if !s.queued && s.may() {
		s.queued = true
		h.queue = append(h.queue, s)
	}
	h.room()
}

// room implements host: as long as the NIC has next to nothing to send, the next stream sends a packet.
func (h *modelHost) room() {
	nic := &h.m.n.ports[h.index]
	for nic.held < h.m.n.nicFull() && len(h.queue) > 0 {
		s := h.queue[0]
		h.queue = h.queue[1:]
		s.queued = false
		if !s.may() {
			continue
		}
		s.pull()
		if s.may() {
			s.queued = true
			h.queue = append(h.queue, s)
		}
	}
}

// wake implements host.
func (h *modelHost) wake() {}

// counts implements host.
func (h *modelHost) counts(t *Tally) {
	t.Payload += h.in
	if h.index == 0 {
		for _, s := range h.m.streams {
			t.Again += s.again
		}
	}
}

// receive implements host.
func (h *modelHost) receive(p *packet) {
	s := h.m.streams[p.seg.stream]
	if p.seg.ack {
		s.acked(&p.seg)
		return
	}
	r := &s.recv
	_, known := r.early[p.seg.num]
	switch num := p.seg.num; {
	case num < r.upto || known: // again
	case num == r.upto:
		h.in += uint64(p.size - h.m.form.Around)
		for known = true; known; _, known = r.early[r.upto] {
			delete(r.early, r.upto)
			r.upto++
		}
	default:
		h.in += uint64(p.size - h.m.form.Around)
		if r.early == nil {
			r.early = map[int32]struct{}{}
		}
		r.early[num] = struct{}{}
	}
	n := h.m.n
	a := n.packet()
	a.from, a.to, a.hash, a.size = h.index, p.from, s.hash[1], ackSize
	a.seg = p.seg
	a.seg.ack, a.seg.upto, a.seg.echo = true, r.upto, p.marked
	n.send(a)
	for len(r.flows) > 0 && r.upto >= r.flows[0].first+h.m.packets(r.flows[0]) {
		f := r.flows[0]
		r.flows = r.flows[1:]
		n.finish(f)
	}
}
