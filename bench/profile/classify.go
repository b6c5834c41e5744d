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

// programRules are for functions of the transport's own code, the first that matches decides.
var programRules = []rule{
	{[]string{"multiedge/bench", "multiedge/edge", "main."}, report.LabelApp},
	{[]string{"multiedge/remap"}, report.LabelRemapping},
	{[]string{"runtime.memmove"}, report.LabelRxCopy},
	{[]string{"multiedge/linkdrv.(*ring).Recv", "multiedge/linkdrv.(*udp).Recv", "multiedge/linkdrv.(*udp).open",
		"multiedge/linkdrv.(*udp).oldest", "multiedge/internal/daemon", "runtime.", "internal/runtime"},
		report.LabelPoll},
	{[]string{"multiedge/linkdrv", "golang.org/x/sys/unix", "syscall.", "internal/syscall"}, report.LabelDevice},
	{[]string{"hash/crc32"}, report.LabelChecksum},
	{[]string{"crypto/", "multiedge/internal/secure", "multiedge/internal/aesgcm"}, report.LabelSealing},
	{[]string{"multiedge/", "encoding/binary", "internal/"}, report.LabelPacket},
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
		"do_sys_poll", "__x64_sys_ppoll", "__do_sys_ppoll", "__x64_sys_sched_yield", "do_sched_yield", "yield_",
		"futex", "__x64_sys_futex", "do_futex", "eventfd",
		"schedule", "__schedule", "asm_sysvec", "irq_", "handle_softirqs", "__do_softirq", "do_epoll",
		"__x64_sys_epoll",
	}}
)

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
		case waiting.matches(name):
			return report.LabelPoll
		}
	}
	return report.LabelOther
}

// programLabel says what a function of the program belongs to.
func programLabel(name string) string {
	for i := range programRules {
		if programRules[i].matches(name) {
			return programRules[i].label
		}
	}
	return report.LabelOther
}
