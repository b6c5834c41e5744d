package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"multiedge/internal/daemon"
	"multiedge/internal/engine"
)

// Names follow node_exporter's infiniband collector where it has a word for the thing.

func deviceCounters() []deviceCounter {
	c := func(name, help string, read func(*engine.Counters) uint64) deviceCounter {
		return deviceCounter{desc(name, help, deviceLabels), read}
	}
	return []deviceCounter{
		c("data_received_bytes_total", "Bytes of operations received.", func(c *engine.Counters) uint64 { return c.PayloadReceived }),
		c("data_transmitted_bytes_total", "Bytes of operations sent, retransmissions included.", func(c *engine.Counters) uint64 { return c.PayloadSent }),
		c("frame_received_bytes_total", "Bytes of Ethernet frames received.", func(c *engine.Counters) uint64 { return c.BytesReceived }),
		c("frame_transmitted_bytes_total", "Bytes of Ethernet frames sent.", func(c *engine.Counters) uint64 { return c.BytesSent }),
		c("packets_received_total", "Frames received.", func(c *engine.Counters) uint64 { return c.FramesReceived }),
		c("packets_transmitted_total", "Frames sent.", func(c *engine.Counters) uint64 { return c.FramesSent }),
		c("data_packets_received_total", "Frames received that have to be acknowledged.", func(c *engine.Counters) uint64 { return c.DataFramesReceived }),
		c("data_packets_transmitted_total", "Frames sent that have to be acknowledged.", func(c *engine.Counters) uint64 { return c.DataFramesSent }),
		c("acks_transmitted_total", "Frames sent only to acknowledge.", func(c *engine.Counters) uint64 { return c.AcksExplicit }),
		c("nacks_transmitted_total", "Acknowledgement blocks sent that name a gap.", func(c *engine.Counters) uint64 { return c.NacksSent }),
		c("retransmitted_packets_total", "Frames sent that carry something sent before.", func(c *engine.Counters) uint64 { return c.FramesRetransmitted }),
		c("lost_packets_total", "Frames judged lost, not counting probes of frame size and of dead paths.", func(c *engine.Counters) uint64 { return c.FramesLost }),
		c("spurious_losses_total", "Frames judged lost that were acknowledged later, probes of frame size too.", func(c *engine.Counters) uint64 { return c.SpuriousLosses }),
		c("local_ack_timeout_errors_total", "Probe time-outs: acknowledgements that did not come in time.", func(c *engine.Counters) uint64 { return c.TailProbes }),
		c("duplicate_requests_packets_total", "Frames received with a packet number seen before.", func(c *engine.Counters) uint64 { return c.FramesDuplicated }),
		c("out_of_sequence_packets_received_total", "Frames received behind a later one of the same path.", func(c *engine.Counters) uint64 { return c.FramesReordered }),
		c("duplicate_segments_total", "Parts of operations received that were in place already.", func(c *engine.Counters) uint64 { return c.SegmentsDuplicated }),
		c("receiver_packets_received_total", "Frames that receivers, threads besides the shards', took from lent links.", func(c *engine.Counters) uint64 { return c.FramesFromReaders }),
		c("in_place_packets_received_total", "Frames whose payload the kernel put where it belongs, without a further copy.", func(c *engine.Counters) uint64 { return c.FramesInPlace }),
		c("exchanged_packets_received_total", "Frames whose payload came to its place by an exchange of pages, without a copy.", func(c *engine.Counters) uint64 { return c.FramesExchanged }),
		c("page_exchanges_total", "Runs of received pages exchanged for those of their destination.", func(c *engine.Counters) uint64 { return c.Exchanges }),
		c("exchanged_bytes_total", "Bytes in those runs.", func(c *engine.Counters) uint64 { return c.BytesExchanged }),
		c("exchange_copied_bytes_total", "Bytes received for an exchange that did not come about, and copied.", func(c *engine.Counters) uint64 { return c.BytesUnexchanged }),
		c("held_segments_total", "Parts of operations that waited behind a fence.", func(c *engine.Counters) uint64 { return c.SegmentsHeld }),
		c("malformed_packets_received_total", "Frames rejected as malformed.", func(c *engine.Counters) uint64 { return c.RejectedMalformed }),
		c("header_checksum_errors_total", "Frames rejected for the checksum of their header.", func(c *engine.Counters) uint64 { return c.RejectedHeaderSum }),
		c("payload_checksum_errors_total", "Frames rejected for the checksum of their payload.", func(c *engine.Counters) uint64 { return c.RejectedPayloadSum }),
		c("version_errors_total", "Frames rejected for their protocol version.", func(c *engine.Counters) uint64 { return c.RejectedVersion }),
		c("authentication_errors_total", "Frames rejected because no key opens them, or plaintext where sealed frames are due.", func(c *engine.Counters) uint64 { return c.RejectedAuth }),
		c("cookie_challenges_total", "Requests for a session that had no good cookie; the first of each honest peer is one.", func(c *engine.Counters) uint64 { return c.RejectedCookie }),
		c("handshakes_failed_total", "Handshakes given up, or ended by an error.", func(c *engine.Counters) uint64 { return c.HandshakesFailed }),
		c("strangers_refused_total", "Peers that proved a key which is not authorised.", func(c *engine.Counters) uint64 { return c.StrangersRefused }),
		c("identity_claims_total", "Hellos of other hosts that claim this node's identity: copies of its key, or forged.", func(c *engine.Counters) uint64 { return c.IdentityClaims }),
		c("guesses_ignored_total", "Operations with wrong keys that got no answer, because there were too many.", func(c *engine.Counters) uint64 { return c.GuessesIgnored }),
		c("resource_errors_total", "Frames left unreceived because nothing could hold them.", func(c *engine.Counters) uint64 { return c.RejectedNoRoom }),
		c("unknown_session_packets_total", "Frames of sessions that do not exist.", func(c *engine.Counters) uint64 { return c.UnknownSession }),
		c("operations_submitted_total", "Operations submitted by local clients.", func(c *engine.Counters) uint64 { return c.OpsSubmitted }),
		c("operations_completed_total", "Operations of local clients that ended, well or not.", func(c *engine.Counters) uint64 { return c.OpsCompleted }),
		c("operations_failed_total", "Operations of local clients that ended with an error.", func(c *engine.Counters) uint64 { return c.OpsFailed }),
		c("operations_applied_total", "Operations of peers applied here.", func(c *engine.Counters) uint64 { return c.OpsApplied }),
		c("remote_access_errors_total", "Operations of peers refused for their key, permission or range.", func(c *engine.Counters) uint64 { return c.AccessRefused }),
		c("notifications_total", "Notifications raised by operations of peers.", func(c *engine.Counters) uint64 { return c.Notifications }),
		c("connections_opened_total", "Connections opened.", func(c *engine.Counters) uint64 { return c.ConnectionsOpened }),
		c("connections_closed_total", "Connections that ended, and attempts at one that were refused.", func(c *engine.Counters) uint64 { return c.ConnectionsClosed }),
		c("sessions_opened_total", "Sessions with peers opened.", func(c *engine.Counters) uint64 { return c.SessionsOpened }),
		c("sessions_failed_total", "Sessions with peers that failed.", func(c *engine.Counters) uint64 { return c.SessionsFailed }),
		c("path_changes_total", "Changes of the state of a path.", func(c *engine.Counters) uint64 { return c.PathChanges }),
	}
}

const (
	gauge   = prometheus.GaugeValue
	counter = prometheus.CounterValue
)

func statusReadings() []reading[daemon.Status] {
	r := func(name, help string, kind prometheus.ValueType, read func(*daemon.Status) float64) reading[daemon.Status] {
		return reading[daemon.Status]{desc(name, help, deviceLabels), kind, read}
	}
	return []reading[daemon.Status]{
		r("clients", "Processes attached.", gauge, func(s *daemon.Status) float64 { return float64(s.Clients) }),
		r("clients_evicted_total", "Processes disconnected for breaking the ring protocol.", counter, func(s *daemon.Status) float64 { return float64(s.Evictions) }),
		r("connections", "Connections of all clients.", gauge, func(s *daemon.Status) float64 { return float64(s.Connections) }),
		r("regions", "Registered regions.", gauge, func(s *daemon.Status) float64 { return float64(s.Regions) }),
		r("exports", "Keys granted to peers.", gauge, func(s *daemon.Status) float64 { return float64(s.Exports) }),
		r("pinned_bytes", "Bytes of registered memory.", gauge, func(s *daemon.Status) float64 { return float64(s.PinnedBytes) }),
		r("draining", "Whether nothing new is taken until a restart.", gauge, func(s *daemon.Status) float64 { return truth(s.Draining) }),
		r("plaintext", "Whether frames are neither encrypted nor authenticated.", gauge, func(s *daemon.Status) float64 { return truth(s.Security == daemon.Plaintext) }),
		r("peers_authorised", "Peers that may talk to the node.", gauge, func(s *daemon.Status) float64 { return float64(s.Authorised) }),
		r("peers", "Nodes heard.", gauge, func(s *daemon.Status) float64 { return float64(s.Peers) }),
	}
}

func linkReadings() []reading[daemon.LinkStatus] {
	r := func(name, help string, kind prometheus.ValueType, read func(*daemon.LinkStatus) float64) reading[daemon.LinkStatus] {
		return reading[daemon.LinkStatus]{desc(name, help, linkLabels), kind, read}
	}
	kernel := func(name, help, word string) reading[daemon.LinkStatus] {
		return r(name, help, counter, func(l *daemon.LinkStatus) float64 { return float64(l.Kernel[word]) })
	}
	engine := func(name, help, word string) reading[daemon.LinkStatus] {
		return r(name, help, counter, func(l *daemon.LinkStatus) float64 { return float64(l.Counters[word]) })
	}
	return []reading[daemon.LinkStatus]{
		r("link_up", "Whether the link is in use.", gauge, func(l *daemon.LinkStatus) float64 { return truth(l.Up) }),
		r("link_mtu_bytes", "MTU of the link, 0 while it is down.", gauge, func(l *daemon.LinkStatus) float64 { return float64(l.MTU) }),
		r("link_blocked", "Whether frames wait because the link has no room.", gauge, func(l *daemon.LinkStatus) float64 { return truth(l.Blocked) }),
		r("link_opened_total", "Times the link was opened.", counter, func(l *daemon.LinkStatus) float64 { return float64(l.Opens) }),
		r("link_transmit_discards_total", "Frames discarded before the kernel took them.", counter, func(l *daemon.LinkStatus) float64 { return float64(l.Discards) }),
		engine("link_frame_received_bytes_total", "Bytes of Ethernet frames received on the link.", "bytes_received"),
		engine("link_frame_transmitted_bytes_total", "Bytes of Ethernet frames sent on the link.", "bytes_sent"),
		engine("link_retransmitted_packets_total", "Frames sent on the link that carry something sent before.", "frames_retransmitted"),
		engine("link_lost_packets_total", "Frames sent on the link and judged lost, not counting probes of frame size and of dead paths.", "frames_lost"),
		engine("link_duplicate_requests_packets_total", "Frames received on the link with a packet number seen before.", "frames_duplicated"),
		engine("link_out_of_sequence_packets_received_total", "Frames received on the link behind a later one of the same path.", "frames_reordered"),
		kernel("link_packets_received_total", "Frames the kernel received for us.", "received"),
		kernel("link_receive_dropped_total", "Frames the kernel dropped because the receive ring was full.", "dropped"),
		kernel("link_receive_truncated_total", "Frames longer than a receive slot.", "truncated"),
		kernel("link_packets_transmitted_total", "Frames the kernel took from us.", "sent"),
		kernel("link_transmit_calls_total", "System calls that sent frames.", "send_calls"),
		kernel("link_transmit_refused_total", "Frames the link cannot carry, discarded.", "refused"),
		kernel("link_transmit_no_room_total", "System calls refused because the link had no room.", "no_room"),
	}
}

func peerReadings() []reading[daemon.PeerStatus] {
	r := func(name, help string, kind prometheus.ValueType, read func(*daemon.PeerStatus) float64) reading[daemon.PeerStatus] {
		return reading[daemon.PeerStatus]{desc(name, help, peerLabels), kind, read}
	}
	return []reading[daemon.PeerStatus]{
		r("peer_up", "Whether a session with the peer is open.", gauge, func(p *daemon.PeerStatus) float64 { return truth(p.State == "open") }),
		r("peer_connections", "Connections with the peer.", gauge, func(p *daemon.PeerStatus) float64 { return float64(p.Connections) }),
		r("peer_silent_seconds", "Time since the last frame of the session with the peer.", gauge, func(p *daemon.PeerStatus) float64 { return p.SilentSeconds }),
		r("peer_packets_in_flight", "Frames sent to the peer and not acknowledged.", gauge, func(p *daemon.PeerStatus) float64 { return float64(p.InFlight) }),
	}
}

func pathReadings() []reading[daemon.PathStatus] {
	r := func(name, help string, kind prometheus.ValueType, read func(*daemon.PathStatus) float64) reading[daemon.PathStatus] {
		return reading[daemon.PathStatus]{desc(name, help, pathLabels), kind, read}
	}
	return []reading[daemon.PathStatus]{
		r("path_good", "Whether the path is in use for data.", gauge, func(p *daemon.PathStatus) float64 { return truth(p.State == "good") }),
		r("path_round_trip_seconds", "Smoothed round-trip time.", gauge, func(p *daemon.PathStatus) float64 { return float64(p.SRTT) / 1e9 }),
		r("path_round_trip_min_seconds", "Shortest round trip seen.", gauge, func(p *daemon.PathStatus) float64 { return float64(p.MinRTT) / 1e9 }),
		r("path_packets_in_flight", "Frames sent on the path and not acknowledged.", gauge, func(p *daemon.PathStatus) float64 { return float64(p.InFlight) }),
		r("path_window_packets", "Frames the path may have in flight.", gauge, func(p *daemon.PathStatus) float64 { return p.Window }),
		r("path_mtu_bytes", "Largest frame in use after the Ethernet header.", gauge, func(p *daemon.PathStatus) float64 { return float64(p.MTU) }),
		r("path_datagrams", "Whether long frames travel in UDP datagrams.", gauge, func(p *daemon.PathStatus) float64 { return truth(p.Datagrams) }),
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
