package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"multiedge/internal/config"
	"multiedge/internal/engine"
	"multiedge/internal/inspect"
)

// Names follow node_exporter's infiniband collector where it has a word for the thing.

// deviceCounters are the counters of engine.Counters, part by part.
func deviceCounters() []deviceCounter {
	return slices.Concat(trafficCounters(), lossCounters(), placingCounters(), rejectCounters(), trustCounters(),
		opCounters(), missCounters(), lifeCounters())
}

func word(name, help string, read func(*engine.Counters) uint64) deviceCounter {
	return deviceCounter{desc(name, help, deviceLabels), read}
}

func trafficCounters() []deviceCounter {
	return []deviceCounter{
		word("data_received_bytes_total", "Bytes of operations received.",
			func(c *engine.Counters) uint64 { return c.Traffic.PayloadReceived }),
		word("data_transmitted_bytes_total", "Bytes of operations sent, retransmissions included.",
			func(c *engine.Counters) uint64 { return c.Traffic.PayloadSent }),
		word("frame_received_bytes_total", "Bytes of Ethernet frames received.",
			func(c *engine.Counters) uint64 { return c.Traffic.BytesReceived }),
		word("frame_transmitted_bytes_total", "Bytes of Ethernet frames sent.",
			func(c *engine.Counters) uint64 { return c.Traffic.BytesSent }),
		word("packets_received_total", "Frames received.",
			func(c *engine.Counters) uint64 { return c.Traffic.FramesReceived }),
		word("packets_transmitted_total", "Frames sent.",
			func(c *engine.Counters) uint64 { return c.Traffic.FramesSent }),
		word("data_packets_received_total", "Frames received that have to be acknowledged.",
			func(c *engine.Counters) uint64 { return c.Traffic.DataFramesReceived }),
		word("data_packets_transmitted_total", "Frames sent that have to be acknowledged.",
			func(c *engine.Counters) uint64 { return c.Traffic.DataFramesSent }),
	}
}

func lossCounters() []deviceCounter {
	return []deviceCounter{
		word("acks_transmitted_total", "Frames sent only to acknowledge.",
			func(c *engine.Counters) uint64 { return c.Loss.AcksExplicit }),
		word("nacks_transmitted_total", "Acknowledgement blocks sent that name a gap.",
			func(c *engine.Counters) uint64 { return c.Loss.NacksSent }),
		word("retransmitted_packets_total", "Frames sent that carry something sent before.",
			func(c *engine.Counters) uint64 { return c.Loss.FramesRetransmitted }),
		word("lost_packets_total", "Frames judged lost, not counting probes of frame size and of dead paths.",
			func(c *engine.Counters) uint64 { return c.Loss.FramesLost }),
		word("train_ends_lost_total", "Frames lost that were the last of several of one length which left as one "+
			"message (GSO), of which the one before arrived.",
			func(c *engine.Counters) uint64 { return c.Loss.TrainEndsLost }),
		word("spurious_losses_total", "Frames judged lost that were acknowledged later, probes of frame size too.",
			func(c *engine.Counters) uint64 { return c.Loss.SpuriousLosses }),
		word("local_ack_timeout_errors_total", "Probe time-outs: acknowledgements that did not come in time.",
			func(c *engine.Counters) uint64 { return c.Loss.TailProbes }),
		word("duplicate_requests_packets_total", "Frames received with a packet number seen before.",
			func(c *engine.Counters) uint64 { return c.Loss.FramesDuplicated }),
		word("out_of_sequence_packets_received_total", "Frames received behind a later one of the same path.",
			func(c *engine.Counters) uint64 { return c.Loss.FramesReordered }),
		word("duplicate_segments_total", "Parts of operations received that were in place already.",
			func(c *engine.Counters) uint64 { return c.Loss.SegmentsDuplicated }),
	}
}

func placingCounters() []deviceCounter {
	return []deviceCounter{
		word("receiver_packets_received_total",
			"Frames that receivers, threads besides the shards', took from lent links.",
			func(c *engine.Counters) uint64 { return c.Placing.FramesFromReaders }),
		word("train_packets_received_total",
			"Frames that continued the operation of the frame before them, and were taken together with it.",
			func(c *engine.Counters) uint64 { return c.Placing.FramesInTrains }),
		word("in_place_packets_received_total",
			"Frames whose payload the kernel put where it belongs, without a further copy.",
			func(c *engine.Counters) uint64 { return c.Placing.FramesInPlace }),
		word("shuffled_packets_received_total",
			"Frames received with their first payload bytes behind the others, for receiving at page boundaries.",
			func(c *engine.Counters) uint64 { return c.Placing.FramesShuffled }),
		word("exchanged_packets_received_total",
			"Frames whose payload came to its place by an exchange of pages, without a copy.",
			func(c *engine.Counters) uint64 { return c.Placing.FramesExchanged }),
		word("page_exchanges_total", "Runs of received pages exchanged for those of their destination.",
			func(c *engine.Counters) uint64 { return c.Placing.Exchanges }),
		word("exchanged_bytes_total", "Bytes in those runs.",
			func(c *engine.Counters) uint64 { return c.Placing.BytesExchanged }),
		word("exchange_copied_bytes_total", "Bytes received for an exchange that did not come about, and copied.",
			func(c *engine.Counters) uint64 { return c.Placing.BytesUnexchanged }),
	}
}

func rejectCounters() []deviceCounter {
	return []deviceCounter{
		word("malformed_packets_received_total", "Frames rejected as malformed.",
			func(c *engine.Counters) uint64 { return c.Reject.RejectedMalformed }),
		word("header_checksum_errors_total", "Frames rejected for the checksum of their header.",
			func(c *engine.Counters) uint64 { return c.Reject.RejectedHeaderSum }),
		word("payload_checksum_errors_total", "Frames rejected for the checksum of their payload.",
			func(c *engine.Counters) uint64 { return c.Reject.RejectedPayloadSum }),
		word("version_errors_total", "Frames rejected for their protocol version.",
			func(c *engine.Counters) uint64 { return c.Reject.RejectedVersion }),
		word("authentication_errors_total", "Frames rejected because no key opens them, or plaintext where sealed "+
			"frames are due.", func(c *engine.Counters) uint64 { return c.Reject.RejectedAuth }),
		word("cookie_challenges_total", "Requests for a session that had no good cookie; the first of each honest "+
			"peer is one.", func(c *engine.Counters) uint64 { return c.Reject.RejectedCookie }),
		word("place_errors_total", "Frames of peers from IP addresses that their allow does not name.",
			func(c *engine.Counters) uint64 { return c.Reject.RejectedPlace }),
		word("resource_errors_total", "Frames left unreceived because nothing could hold them.",
			func(c *engine.Counters) uint64 { return c.Reject.RejectedNoRoom }),
		word("unknown_session_packets_total", "Frames of sessions that do not exist.",
			func(c *engine.Counters) uint64 { return c.Reject.UnknownSession }),
	}
}

func trustCounters() []deviceCounter {
	return []deviceCounter{
		word("key_exchanges_total", "Exchanges of fresh keys in sessions that are open.",
			func(c *engine.Counters) uint64 { return c.Trust.KeyExchanges }),
		word("key_exchanges_missed_total", "Sessions that ended since fresh keys did not come in time.",
			func(c *engine.Counters) uint64 { return c.Trust.KeysWorn }),
		word("handshakes_failed_total", "Handshakes given up, or ended by an error.",
			func(c *engine.Counters) uint64 { return c.Trust.HandshakesFailed }),
		word("strangers_refused_total", "Peers that proved a key which is not authorised.",
			func(c *engine.Counters) uint64 { return c.Trust.StrangersRefused }),
		word("identity_claims_total", "Hellos of other hosts that claim this node's identity: copies of its key, or "+
			"forged.", func(c *engine.Counters) uint64 { return c.Trust.IdentityClaims }),
	}
}

func opCounters() []deviceCounter {
	return []deviceCounter{
		word("operations_submitted_total", "Operations submitted by local clients.",
			func(c *engine.Counters) uint64 { return c.Op.OpsSubmitted }),
		word("operations_completed_total", "Operations of local clients that ended, well or not.",
			func(c *engine.Counters) uint64 { return c.Op.OpsCompleted }),
		word("operations_failed_total", "Operations of local clients that ended with an error.",
			func(c *engine.Counters) uint64 { return c.Op.OpsFailed }),
		word("writes_copied_total", "Writes that were complete at once, because their bytes were copied.",
			func(c *engine.Counters) uint64 { return c.Op.WritesCopied }),
		word("writes_received_total", "Writes that were complete when the peer had their bytes.",
			func(c *engine.Counters) uint64 { return c.Op.WritesAcked }),
		word("operations_failed_late_total", "Writes that failed after they were complete locally.",
			func(c *engine.Counters) uint64 { return c.Op.OpsFailedLate }),
		word("redirected_bytes_total", "Bytes of peers' writes put where redirections that have ended sent them.",
			func(c *engine.Counters) uint64 { return c.Placing.BytesRedirected }),
		word("operations_applied_total", "Operations of peers applied here.",
			func(c *engine.Counters) uint64 { return c.Op.OpsApplied }),
		word("atomics_total", "Atomics of peers performed on memory here.",
			func(c *engine.Counters) uint64 { return c.Op.AtomicsPerformed }),
		word("held_segments_total", "Parts of operations that waited behind a fence.",
			func(c *engine.Counters) uint64 { return c.Op.SegmentsHeld }),
		word("remote_access_errors_total", "Operations of peers refused for their key, permission or range.",
			func(c *engine.Counters) uint64 { return c.Op.AccessRefused }),
		word("guesses_ignored_total", "Operations with wrong keys that got no answer, because there were too many.",
			func(c *engine.Counters) uint64 { return c.Op.GuessesIgnored }),
		word("notifications_total", "Notifications raised by operations of peers.",
			func(c *engine.Counters) uint64 { return c.Op.Notifications }),
		word("messages_received_total", "Messages of peers that arrived whole in a buffer posted for them.",
			func(c *engine.Counters) uint64 { return c.Op.MessagesReceived }),
		word("messages_too_long_total", "Messages of peers refused because they were longer than their buffer.",
			func(c *engine.Counters) uint64 { return c.Op.MessagesTooLong }),
		word("messages_unbuffered_total", "Messages of peers refused because no buffer was posted and they did "+
			"not wait.",
			func(c *engine.Counters) uint64 { return c.Op.MessagesUnbuffered }),
		word("sends_waited_total", "Sends of local clients that found no buffer posted at the peer.",
			func(c *engine.Counters) uint64 { return c.Op.SendsWaited }),
		word("eager_committed_total", "Composed messages of local clients of which blocks had left when they were "+
			"committed.", func(c *engine.Counters) uint64 { return c.Eager.EagerCommitted }),
		word("eager_discarded_total", "Composed messages that local clients dropped.",
			func(c *engine.Counters) uint64 { return c.Eager.EagerDiscarded }),
		word("eager_bytes_total", "Bytes of composed messages sent before they were committed.",
			func(c *engine.Counters) uint64 { return c.Eager.EagerBytes }),
		word("eager_refused_total", "Composed messages of peers for which there was no room here.",
			func(c *engine.Counters) uint64 { return c.Eager.EagerRefused }),
	}
}

func lifeCounters() []deviceCounter {
	return []deviceCounter{
		word("connections_opened_total", "Connections opened.",
			func(c *engine.Counters) uint64 { return c.Life.ConnectionsOpened }),
		word("connections_closed_total", "Connections that ended, and attempts at one that were refused.",
			func(c *engine.Counters) uint64 { return c.Life.ConnectionsClosed }),
		word("sessions_opened_total", "Sessions with peers opened.",
			func(c *engine.Counters) uint64 { return c.Life.SessionsOpened }),
		word("sessions_failed_total", "Sessions with peers that failed.",
			func(c *engine.Counters) uint64 { return c.Life.SessionsFailed }),
		word("path_changes_total", "Changes of the state of a path.",
			func(c *engine.Counters) uint64 { return c.Life.PathChanges }),
		word("path_moves_total", "Moves of peers to other addresses over IP that were followed.",
			func(c *engine.Counters) uint64 { return c.Life.PathMoves }),
		word("marks_failed_total", "Times that marks of congestion (ECN) were found not to get through to a peer.",
			func(c *engine.Counters) uint64 { return c.Life.MarksFailed }),
		word("lane_draws_total", "Times that a path of an IP link's lane took another port, since its way was dead.",
			func(c *engine.Counters) uint64 { return c.Life.LaneDraws }),
	}
}

const (
	gauge   = prometheus.GaugeValue
	counter = prometheus.CounterValue
)

func statusReadings() []reading[inspect.Status] {
	r := readings[inspect.Status](deviceLabels)
	return []reading[inspect.Status]{
		r("clients", "Processes attached.", gauge, func(s *inspect.Status) float64 { return float64(s.Clients) }),
		r("clients_evicted_total", "Processes disconnected for breaking the ring protocol.", counter,
			func(s *inspect.Status) float64 { return float64(s.Evictions) }),
		r("connections", "Connections of all clients.", gauge,
			func(s *inspect.Status) float64 { return float64(s.Connections) }),
		r("regions", "Registered regions.", gauge, func(s *inspect.Status) float64 { return float64(s.Regions) }),
		r("exports", "Keys granted to peers.", gauge, func(s *inspect.Status) float64 { return float64(s.Exports) }),
		r("pinned_bytes", "Bytes of registered memory.", gauge,
			func(s *inspect.Status) float64 { return float64(s.PinnedBytes) }),
		r("pinned_limit_bytes", "Bytes that all users together may be charged for.", gauge,
			func(s *inspect.Status) float64 { return float64(s.PinnedLimit) }),
		r("charged_bytes", "Bytes charged to users: registered memory, and queues.", gauge,
			func(s *inspect.Status) float64 { return float64(s.ChargedBytes) }),
		r("regions_limit", "Regions that all users together may register.", gauge,
			func(s *inspect.Status) float64 { return float64(s.RegionsLimit) }),
		r("clients_limit", "Processes that may be attached at once.", gauge,
			func(s *inspect.Status) float64 { return float64(s.ClientsLimit) }),
		r("draining", "Whether nothing new is taken until a restart.", gauge,
			func(s *inspect.Status) float64 { return truth(s.Draining) }),
		r("config_last_reload_successful", "Whether the configuration in force is the one that was read last; 1 also "+
			"if none was since the start.", gauge, func(s *inspect.Status) float64 {
			return truth(s.Reload == nil || s.Reload.Result != inspect.ReloadFailed)
		}),
		r("plaintext", "Whether frames are neither encrypted nor authenticated.", gauge,
			func(s *inspect.Status) float64 { return truth(s.Security == config.Plaintext) }),
		r("peers_authorised", "Peers that may talk to the node.", gauge,
			func(s *inspect.Status) float64 { return float64(s.Authorised) }),
		r("peers", "Nodes heard.", gauge, func(s *inspect.Status) float64 { return float64(s.Peers) }),
	}
}

func linkReadings() []reading[inspect.LinkStatus] {
	r := readings[inspect.LinkStatus](linkLabels)
	kernel := func(name, help, word string) reading[inspect.LinkStatus] {
		return r(name, help, counter, func(l *inspect.LinkStatus) float64 { return float64(l.Kernel[word]) })
	}
	engine := func(name, help, word string) reading[inspect.LinkStatus] {
		return r(name, help, counter, func(l *inspect.LinkStatus) float64 { return float64(l.Counters[word]) })
	}
	return []reading[inspect.LinkStatus]{
		r("link_up", "Whether the link is in use.", gauge, func(l *inspect.LinkStatus) float64 { return truth(l.Up) }),
		r("link_mtu_bytes", "MTU of the link, 0 while it is down.", gauge,
			func(l *inspect.LinkStatus) float64 { return float64(l.MTU) }),
		r("link_blocked", "Whether frames wait because the link has no room.", gauge,
			func(l *inspect.LinkStatus) float64 { return truth(l.Blocked) }),
		r("link_opened_total", "Times the link was opened.", counter,
			func(l *inspect.LinkStatus) float64 { return float64(l.Opens) }),
		r("link_transmit_discards_total", "Frames discarded before the kernel took them.", counter,
			func(l *inspect.LinkStatus) float64 { return float64(l.Discards) }),
		engine("link_frame_received_bytes_total", "Bytes of Ethernet frames received on the link.", "bytes_received"),
		engine("link_frame_transmitted_bytes_total", "Bytes of Ethernet frames sent on the link.", "bytes_sent"),
		engine("link_retransmitted_packets_total", "Frames sent on the link that carry something sent before.",
			"frames_retransmitted"),
		engine("link_lost_packets_total", "Frames sent on the link and judged lost, not counting probes of frame "+
			"size and of dead paths.", "frames_lost"),
		engine("link_train_ends_lost_total", "Frames lost on the link that were the last of several of one length "+
			"which left as one message (GSO), of which the one before arrived.", "train_ends_lost"),
		engine("link_marked_packets_total", "Frames sent on the IP link that routers marked (ECN), as peers say.",
			"frames_marked"),
		engine("link_marks_failed_total", "Times that marks (ECN) were found not to get through a path of the IP link.",
			"marks_failed"),
		engine("link_duplicate_requests_packets_total", "Frames received on the link with a packet number seen before.",
			"frames_duplicated"),
		engine("link_out_of_sequence_packets_received_total",
			"Frames received on the link behind a later one of the same path.", "frames_reordered"),
		kernel("link_packets_received_total", "Frames the kernel received for us.", "received"),
		kernel("link_receive_dropped_total", "Frames the kernel dropped because the receive ring was full.", "dropped"),
		kernel("link_receive_truncated_total", "Frames longer than a receive slot.", "truncated"),
		kernel("link_packets_transmitted_total", "Frames the kernel took from us.", "sent"),
		kernel("link_transmit_calls_total", "System calls that sent frames.", "send_calls"),
		kernel("link_transmit_refused_total", "Frames the link cannot carry, discarded.", "refused"),
		kernel("link_transmit_uncut_total", "System calls refused because the kernel does not cut up messages of "+
			"several datagrams (GSO) where they leave; these travel one by one.", "uncut"),
		kernel("link_transmit_no_room_total", "System calls refused because the link had no room.", "no_room"),
	}
}

func peerReadings() []reading[inspect.PeerStatus] {
	r := readings[inspect.PeerStatus](peerLabels)
	return []reading[inspect.PeerStatus]{
		r("peer_up", "Whether a session with the peer is open.", gauge,
			func(p *inspect.PeerStatus) float64 { return truth(p.State == "open") }),
		r("peer_connections", "Connections with the peer.", gauge,
			func(p *inspect.PeerStatus) float64 { return float64(p.Connections) }),
		r("peer_received_bytes_total", "Bytes of frames with data from the peer.", counter,
			func(p *inspect.PeerStatus) float64 { return float64(p.Received) }),
		r("peer_sessions_opened_total", "Sessions with the peer opened.", counter,
			func(p *inspect.PeerStatus) float64 { return float64(p.Sessions) }),
		r("peer_silent_seconds", "Time since the last frame of the session with the peer.", gauge,
			func(p *inspect.PeerStatus) float64 { return p.SilentSeconds }),
		r("peer_packets_in_flight", "Frames sent to the peer and not acknowledged.", gauge,
			func(p *inspect.PeerStatus) float64 { return float64(p.InFlight) }),
	}
}

func pathReadings() []reading[inspect.PathStatus] {
	r := readings[inspect.PathStatus](pathLabels)
	return []reading[inspect.PathStatus]{
		r("path_good", "Whether the path is in use for data.", gauge,
			func(p *inspect.PathStatus) float64 { return truth(p.State == "good") }),
		r("path_round_trip_seconds", "Smoothed round-trip time.", gauge,
			func(p *inspect.PathStatus) float64 { return float64(p.SRTT) / 1e9 }),
		r("path_round_trip_min_seconds", "Shortest round trip seen.", gauge,
			func(p *inspect.PathStatus) float64 { return float64(p.MinRTT) / 1e9 }),
		r("path_packets_in_flight", "Frames sent on the path and not acknowledged.", gauge,
			func(p *inspect.PathStatus) float64 { return float64(p.InFlight) }),
		r("path_window_packets", "Frames the path may have in flight.", gauge,
			func(p *inspect.PathStatus) float64 { return p.Window }),
		r("path_mtu_bytes", "Largest frame in use after the Ethernet header.", gauge,
			func(p *inspect.PathStatus) float64 { return float64(p.MTU) }),
		r("path_datagrams", "Whether long frames travel in UDP datagrams.", gauge,
			func(p *inspect.PathStatus) float64 { return truth(p.Datagrams) }),
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
