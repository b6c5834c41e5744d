package report

// CPU is the processor time one measurement cost, at both ends.
type CPU struct {
	Client End     `json:"client"`
	Server End     `json:"server"`
	Total  float64 `json:"total"`
}

// End is the processor time of one end in seconds: the application's process, and the daemon that serves it (zero when
// the transport is embedded in the process, or belongs to the kernel).
type End struct {
	ProcessUser   float64   `json:"process_user"`
	ProcessSystem float64   `json:"process_system"`
	DaemonUser    float64   `json:"daemon_user"`
	DaemonSystem  float64   `json:"daemon_system"`
	Total         float64   `json:"total"`
	Breakdown     Breakdown `json:"breakdown,omitempty"`
}

// Breakdown is processor time in seconds by label. Labels that cannot be told apart are absent, not zero.
type Breakdown map[string]float64

// Labels of a breakdown: the paper's (§3.1), and where only the processes' own accounting is at hand, sums of them.
const (
	LabelPoll      = "Poll/IRQ"     // sleeping, waking and interrupts: the kernel's part of waiting
	LabelIdle      = "Busy polling" // looks at rings and the clock, and yields: the program's part
	LabelTxCopy    = "TxCopy/Translate"
	LabelRxCopy    = "RxCopy"
	LabelRemapping = "Remapping"
	LabelPacket    = "Packet"
	LabelDevice    = "Device"
	LabelChecksum  = "Checksum" // of payload; the paper leaves that to the card
	LabelSealing   = "Encryption"
	LabelApp       = "Application"
	LabelOther     = "Other"

	LabelDaemonUser   = "Packet + RxCopy (daemon, user)"
	LabelDaemonSystem = "TxCopy + Device (daemon, kernel)"
)

// Labels lists every label in the order in which bars are stacked.
var Labels = []string{
	LabelPoll, LabelIdle, LabelTxCopy, LabelRxCopy, LabelRemapping, LabelPacket, LabelChecksum, LabelSealing,
	LabelDevice, LabelDaemonUser, LabelDaemonSystem, LabelApp, LabelOther,
}

// Sum fills e.Total from its parts and returns e.
func (e End) Sum() End {
	e.Total = e.ProcessUser + e.ProcessSystem + e.DaemonUser + e.DaemonSystem
	return e
}

// Parts returns e's breakdown; without a measured one, what the kernel accounts for each process.
func (e End) Parts() Breakdown {
	if len(e.Breakdown) > 0 {
		return e.Breakdown
	}
	b := Breakdown{LabelApp: e.ProcessUser + e.ProcessSystem}
	if e.DaemonUser+e.DaemonSystem > 0 {
		b[LabelDaemonUser], b[LabelDaemonSystem] = e.DaemonUser, e.DaemonSystem
	}
	return b
}

// Ends returns the CPU of a measurement from that of its ends.
func Ends(client, server End) CPU {
	client, server = client.Sum(), server.Sum()
	return CPU{Client: client, Server: server, Total: client.Total + server.Total}
}

// PerGiB returns processor seconds, both ends, for each GiB of payload; 0 when nothing was moved.
func (r *Row) PerGiB() float64 {
	if r.Bytes == 0 {
		return 0
	}
	return r.CPU.Total / (float64(r.Bytes) / (1 << 30))
}
