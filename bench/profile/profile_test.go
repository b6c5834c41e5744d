package profile

import (
	"encoding/binary"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/report"
)

func TestKernelLabels(t *testing.T) {
	for _, c := range []struct{ chain, want string }{
		{"_copy_from_iter skb_copy_datagram_from_iter packet_sendmsg __sys_sendmmsg", report.LabelTxCopy},
		{"__pi_memcpy skb_copy_bits tpacket_rcv process_backlog handle_softirqs packet_sendmsg", report.LabelRxCopy},
		{"read_tsc ktime_get_real_ts64 tpacket_rcv process_backlog packet_sendmsg", report.LabelDevice},
		{"kmem_cache_alloc_node_noprof __alloc_skb sock_alloc_send_pskb packet_sendmsg", report.LabelDevice},
		{"rep_movs_alternative _copy_to_iter packet_recvmsg __sys_recvmmsg", report.LabelRxCopy},
		{"schedule_hrtimeout_range do_sys_poll __x64_sys_ppoll", report.LabelPoll},
		{"__schedule schedule do_sched_yield __x64_sys_sched_yield", report.LabelIdle},
		{"process_backlog __napi_poll handle_softirqs packet_sendmsg", report.LabelPoll},
		{"shmem_fault do_fault", report.LabelOther},
		{"smp_call_function_many_cond flush_tlb_mm_range __mmap_region do_mmap vm_mmap_pgoff __x64_sys_mmap",
			report.LabelRemapping},
		{"", report.LabelOther},
	} {
		if got := kernelLabel(strings.Fields(c.chain)); got != c.want {
			t.Errorf("%s: %s, want %s", c.chain, got, c.want)
		}
	}
}

func TestProgramLabels(t *testing.T) {
	for name, want := range map[string]string{
		"runtime.memmove": report.LabelRxCopy, "multiedge/internal/engine.(*Endpoint).Handle": report.LabelPacket,
		"multiedge/internal/engine/op.(*Write).Apply":    report.LabelPacket,
		"multiedge/internal/shard.(*Shard).work":         report.LabelIdle,
		"multiedge/internal/shard.(*Shard).Iterate":      report.LabelIdle,
		"multiedge/internal/shard.(*Shard).submit":       report.LabelPacket,
		"multiedge/internal/idle.(*Patience).Limit":      report.LabelIdle,
		"multiedge/internal/ipc.(*SubmitConsumer).Ready": report.LabelIdle,
		"multiedge/internal/ipc.(*SubmitConsumer).Drain": report.LabelPacket,
		"multiedge/internal/daemon.(*session).serve":     report.LabelOther,
		"multiedge/linkdrv.(*ring).Recv":                 report.LabelIdle,
		"multiedge/edge.(*strategy).idle":                report.LabelIdle,
		"runtime.nanotime1":                              report.LabelIdle,
		"runtime.futex":                                  report.LabelPoll,
		"multiedge/cmd/edged.main":                       report.LabelApp,
		"multiedge/linkdrv.(*ring).release":              report.LabelDevice,
		"hash/crc32.castagnoliSSE42":                     report.LabelChecksum,
		"multiedge/edge.(*Conn).Post":                    report.LabelApp,
		"multiedge/bench/workload.(*sender).run":         report.LabelApp,
		"strings.Index":                                  report.LabelOther,
	} {
		if got := programLabel(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// Every package of the transport has a label, every label a package, and every looker a function: what is moved or made
// anew must be classified before anybody trusts a breakdown.
func TestEveryPackageIsClassified(t *testing.T) {
	root := filepath.Join("..", "..")
	found := map[string]bool{}
	for _, top := range []string{"internal", "edge", "linkdrv", "flowctl", "sched", "regmem", "remap"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.HasSuffix(name, ".go") {
				path, _ := filepath.Rel(root, filepath.Dir(name))
				found[filepath.ToSlash(path)] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(found) < 20 {
		t.Fatalf("only %d packages were found", len(found))
	}
	for path := range found {
		if packageLabel(path) == "" {
			t.Errorf("package %s has no label in packageLabels: say what its time counts as", path)
		}
	}
	for path := range packageLabels {
		if !found[path] {
			t.Errorf("packageLabels has %s, which is no package", path)
		}
	}
	for path, names := range lookers {
		has := functions(t, filepath.Join(root, path))
		for _, name := range names {
			if !has[name] {
				t.Errorf("lookers has %s.%s, which is no function", path, name)
			}
		}
	}
}

// functions are those declared in a package, as the runtime names them.
func functions(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, "*.go"))
	has := map[string]bool{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			form := fn.Name.Name
			if fn.Recv != nil {
				switch r := fn.Recv.List[0].Type.(type) {
				case *ast.StarExpr:
					if id, ok := r.X.(*ast.Ident); ok {
						form = "(*" + id.Name + ")." + form
					}
				case *ast.Ident:
					form = r.Name + "." + form
				}
			}
			has[form] = true
		}
	}
	return has
}

func TestSymbols(t *testing.T) {
	s, err := parseSymbols([]byte("0000000000000200 T second\n0000000000000100 t first\n0000000000000150 d " +
		"data\n0000000000000300 W third\t[mod]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[uint64]string{0: "", 0xff: "", 0x100: "first", 0x1ff: "first", 0x200: "second",
		1 << 60: "third"} {
		if got := s.name(addr); got != want {
			t.Errorf("name(%#x) = %q, want %q", addr, got, want)
		}
	}
	if _, err := parseSymbols([]byte("0000000000000000 T a\n0000000000000000 T b\n")); err != errHidden {
		t.Errorf("hidden addresses: %v", err)
	}
	if _, err := parseSymbols([]byte("zz T a\n")); err == nil {
		t.Error("nonsense was accepted")
	}
}

func record(ip uint64, pid uint32, chain ...uint64) []byte {
	b := binary.NativeEndian.AppendUint64(nil, ip)
	b = binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(b, pid), pid)
	b = binary.NativeEndian.AppendUint64(b, uint64(len(chain)))
	for _, a := range chain {
		b = binary.NativeEndian.AppendUint64(b, a)
	}
	return b
}

func TestDecode(t *testing.T) {
	const marker = 0xFFFF_FFFF_FFFF_FF80 // what follows is the kernel's
	s, ok := decode(modeKernel, record(7, 42, marker, 7, 8), nil)
	if !ok || s.ip != 7 || s.pid != 42 || !s.kernel || len(s.chain) != 2 || s.chain[1] != 8 {
		t.Errorf("%+v, %v", s, ok)
	}
	if s, ok = decode(2, record(7, 42), nil); !ok || s.kernel {
		t.Errorf("%+v, %v", s, ok)
	}
	long := make([]uint64, 200)
	if s, ok = decode(modeKernel, record(1, 1, long...), nil); !ok || len(s.chain) != maxChain {
		t.Errorf("chain of %d, %v", len(s.chain), ok)
	}
	whole := record(1, 1, 2, 3)
	for n := range whole {
		if _, ok := decode(modeKernel, whole[:n], nil); ok {
			t.Errorf("a record cut to %d bytes was accepted", n)
		}
	}
}

// burn uses so much processor time, however busy the machine is, in a way that cannot be optimised away.
func burn(d time.Duration) (x uint64) {
	used := func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
			panic(err)
		}
		return time.Duration(ts.Nano())
	}
	for end := used() + d; used() < end; {
		for range 100_000 {
			x = x*6364136223846793005 + 1442695040888963407
		}
	}
	return x
}

func TestProfilerSeesThisProcess(t *testing.T) {
	p, err := New()
	if err != nil {
		refused := errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
		if !errors.Is(err, errHidden) && !refused || refused && !strings.Contains(err.Error(), "CAP_PERFMON") {
			t.Fatal(err)
		}
		return // not allowed here; that it says so is what counts
	}
	runtime.KeepAlive(burn(time.Millisecond))
	p.Reset()
	runtime.KeepAlive(burn(200 * time.Millisecond))
	mine := p.Take()[os.Getpid()]
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if mine[report.LabelApp] < 30 {
		t.Errorf("200 ms of work gave samples %v", mine)
	}
}

func TestSplit(t *testing.T) {
	end := report.End{ProcessUser: 1, DaemonUser: 2, DaemonSystem: 2}
	b := Split(end, report.Breakdown{report.LabelApp: 99}, report.Breakdown{report.LabelPacket: 75,
		report.LabelTxCopy: 25}, false)
	if b[report.LabelApp] != 1 || b[report.LabelPacket] != 3 || b[report.LabelTxCopy] != 1 {
		t.Errorf("daemon: %v", b)
	}
	b = Split(report.End{ProcessUser: 2}, report.Breakdown{report.LabelApp: 50, report.LabelPacket: 150}, nil, true)
	if b[report.LabelApp] != 0.5 || b[report.LabelPacket] != 1.5 {
		t.Errorf("embedded: %v", b)
	}
	if b := Split(end, nil, report.Breakdown{report.LabelPacket: 3}, false); b != nil {
		t.Errorf("of three samples: %v", b)
	}
}
