package profile

import (
	"slices"
	"strings"

	"multiedge/bench/report"
)

// A rule gives a label to places whose function has one of the prefixes.
type rule struct {
	prefixes []string
	label    string
}

func (r *rule) matches(name string) bool {
	return slices.ContainsFunc(r.prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// module begins the names of this module's functions.
const module = "multiedge/"

// packageLabels gives each package of the transport a label, by its path in the module; a path stands for the packages
// below it too, and the longest that fits decides. A test fails for a package that is not here, and for an entry
// without a package.
var packageLabels = map[string]string{
	// the way of a frame
	"internal/engine": report.LabelPacket, "internal/frame": report.LabelPacket, "internal/wire": report.LabelPacket,
	"internal/seqnum": report.LabelPacket, "internal/hist": report.LabelPacket, "internal/trace": report.LabelPacket,
	"flowctl": report.LabelPacket, "sched": report.LabelPacket,
	"regmem":         report.LabelPacket, // keys, ranges, chunks
	"internal/abi":   report.LabelPacket, // numbers and words of entries and statuses
	"internal/ipc":   report.LabelPacket, // entries of the rings; looks at them: lookers
	"internal/shard": report.LabelPacket, // from ring to engine and back; its loop: lookers
	"linkdrv":        report.LabelDevice,
	"remap":          report.LabelRemapping, "internal/prefetch": report.LabelRxCopy,
	"internal/secure": report.LabelSealing, "internal/aesgcm": report.LabelSealing,
	// waiting
	"internal/idle": report.LabelIdle, "internal/mono": report.LabelIdle,
	// the program
	"edge": report.LabelApp,
	// beside the way of a frame
	"internal/daemon": report.LabelOther, "internal/config": report.LabelOther, "internal/inspect": report.LabelOther,
	"internal/identity": report.LabelOther, "internal/forward": report.LabelOther,
	"internal/metrics": report.LabelOther,
	"internal/ethtool": report.LabelOther, "internal/lab": report.LabelOther, "internal/sim": report.LabelOther,
	"internal/fault":     report.LabelOther,
	"internal/buildinfo": report.LabelOther, "internal/clidoc": report.LabelOther,
	"internal/layering": report.LabelOther,
}

// lookers are the functions that a thread goes round in while it waits: they look at rings, words and the clock. What
// they find is handled by others, so that their own time is busy polling. A test fails for one that does not exist.
var lookers = map[string][]string{
	"internal/shard": {"(*Shard).work", "(*Shard).Iterate", "(*Shard).receive", "(*Shard).drainClients",
		"(*Shard).clientsPoll", "(*Shard).clientsReady", "(*Shard).judgeAll", "(*Shard).Drive",
		"(*Shard).leaveToDrivers", "(*receivers).waiting", "(*receiver).serve", "(*receiver).receive",
		"(*mailbox).run", "(*waiter).idle", "yield"},
	"internal/ipc": {"(*SubmitConsumer).Ready", "(*CompleteConsumer).Ready", "(*Rings).ClientPolling",
		"(*Rings).SetClientPolling"},
	"linkdrv": {"(*ring).Recv", "(*ring).filled", "(*ring).judgeEmpty", "(*udp).Recv", "(*udp).open", "(*udp).oldest"},
	"edge":    {"(*attachment).leadFor", "(*attachment).goRound", "(*strategy).idle"},
}

// otherRules are for functions of no package of the transport, the first that matches decides.
var otherRules = []rule{
	{[]string{module + "bench", module + "cmd", "main."}, report.LabelApp},
	{[]string{"runtime.memmove"}, report.LabelRxCopy},
	{[]string{"runtime.nanotime", "time.Since", "time.Now", "time.now", "time.runtimeNano"}, report.LabelIdle},
	{[]string{"runtime.", "internal/runtime"}, report.LabelPoll},
	{[]string{"golang.org/x/sys/unix", "syscall.", "internal/syscall"}, report.LabelDevice},
	{[]string{"hash/crc32"}, report.LabelChecksum},
	{[]string{"crypto/"}, report.LabelSealing},
	{[]string{"encoding/binary", "sync/atomic", "internal/"}, report.LabelPacket},
}

// packageLabel is the label of a package of the transport, by its path in the module; "" for others.
func packageLabel(path string) string {
	for {
		if label := packageLabels[path]; label != "" {
			return label
		}
		i := strings.LastIndexByte(path, '/')
		if i < 0 {
			return ""
		}
		path = path[:i]
	}
}

// split divides a function's name into the path of its package and its name there.
func split(name string) (path, function string) {
	slash := strings.LastIndexByte(name, '/') + 1
	dot := strings.IndexByte(name[slash:], '.')
	if dot < 0 {
		return name, ""
	}
	return name[:slash+dot], name[slash+dot+1:]
}

// copying are kernel functions that move payload.
var copying = rule{prefixes: []string{"memcpy", "__memcpy", "rep_movs", "_copy_from_iter", "_copy_to_iter", "copy_user",
	"__copy_user", "skb_copy_bits", "copyin", "copyout", "memmove"}}

// Where in the kernel a packet is received or sent, by a function on the way.
var (
	receiving = rule{prefixes: []string{"tpacket_rcv", "packet_rcv", "packet_recvmsg", "__skb_recv", "skb_recv",
		"___sys_recvmsg", "__sys_recvmmsg"}}
	sending = rule{prefixes: []string{"packet_sendmsg", "packet_snd", "packet_xmit", "packet_direct_xmit",
		"dev_direct_xmit", "__dev_direct_xmit", "__dev_queue_xmit", "___sys_sendmsg", "__sys_sendmmsg"}}
	mapping = rule{prefixes: []string{"__x64_sys_mmap", "__arm64_sys_mmap", "ksys_mmap_pgoff", "vm_mmap_pgoff",
		"__mm_populate"}}
	waiting = rule{prefixes: []string{
		"do_sys_poll", "__x64_sys_ppoll", "__do_sys_ppoll",
		"futex", "__x64_sys_futex", "do_futex", "eventfd",
		"schedule", "__schedule", "asm_sysvec", "irq_", "handle_softirqs", "__do_softirq", "do_epoll",
		"__x64_sys_epoll",
	}}
)

// yielding is giving the core away between two looks.
var yielding = rule{prefixes: []string{"__x64_sys_sched_yield", "__arm64_sys_sched_yield", "__do_sys_sched_yield",
	"do_sched_yield", "yield_"}}

// kernelLabel says what the kernel did for a process of the transport. chain names functions from the innermost
// outwards.
//
// On veth a frame is delivered by its sender: the copy into the receiver's ring happens within the sender's call, and
// is labelled as what it is, a copy of the receive path.
func kernelLabel(chain []string) string {
	copies := slices.ContainsFunc(chain[:min(3, len(chain))], copying.matches)
	for _, name := range chain {
		switch {
		case receiving.matches(name) && copies:
			return report.LabelRxCopy
		case sending.matches(name) && copies:
			return report.LabelTxCopy
		case receiving.matches(name), sending.matches(name):
			return report.LabelDevice
		case mapping.matches(name):
			return report.LabelRemapping
		case yielding.matches(name):
			return report.LabelIdle
		case waiting.matches(name):
			if slices.ContainsFunc(chain, yielding.matches) {
				return report.LabelIdle
			}
			return report.LabelPoll
		}
	}
	return report.LabelOther
}

// programLabel says what a function of the program belongs to.
func programLabel(name string) string {
	if own, ok := strings.CutPrefix(name, module); ok {
		path, function := split(own)
		if slices.Contains(lookers[path], function) {
			return report.LabelIdle
		}
		if label := packageLabel(path); label != "" {
			return label
		}
	}
	for i := range otherRules {
		if otherRules[i].matches(name) {
			return otherRules[i].label
		}
	}
	return report.LabelOther
}
