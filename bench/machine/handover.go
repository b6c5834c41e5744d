package machine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/kit"
	"multiedge/bench/report"
)

// Hand-overs between this process and a second one, the peer. Both share a page with a question and an answer, and have
// an eventfd each:
//
//	this process   question++, wakes the peer, waits until answer is question
//	the peer       waits for another question, answer = question, wakes this process
//
// In a round trip each of the two gives the core, or the word, to the other once.

// way is how one waits and wakes.
type way int

const (
	byYield way = iota
	byFutex
	byEventfd
)

// giveUp is how long the peer may take to end.
const giveUp = 2 * time.Second

// handOvers measures hand-overs on the first of the cores, and between it and the second if there is one. This thread
// is bound to the first core afterwards.
func handOvers(c *report.Card, cores []int) {
	if bind(cores[0]) != nil {
		return
	}
	c.YieldSwitch = handOver(byYield, cores[0])
	c.FutexOneCore = handOver(byFutex, cores[0])
	c.EventfdOneCore = handOver(byEventfd, cores[0])
	if len(cores) > 1 {
		c.FutexAcross = handOver(byFutex, cores[1])
		c.EventfdAcross = handOver(byEventfd, cores[1])
	}
}

// handOver returns the nanoseconds of half a round trip with a peer on a core; 0 where there is none.
func handOver(w way, core int) float64 {
	p, err := startPeer(w, core)
	if err != nil {
		return 0
	}
	defer p.end()
	if p.ask() != nil { // it is up
		return 0
	}
	failed := false
	ns := least(30*time.Millisecond, 100, func(n int) {
		runtime.Gosched() // or the runtime takes the processor away at every system call: see idle.Turn
		for range n {
			if failed = failed || p.ask() != nil; failed {
				return
			}
		}
	})
	if failed {
		return 0
	}
	return ns / 2
}

// peer is the second process, as the first sees it.
type peer struct {
	cmd    *exec.Cmd
	w      way
	page   *words
	shared *os.File
	bells  [2]*os.File // of this process, of the peer
	ended  chan struct{}
}

func startPeer(w way, core int) (*peer, error) {
	p := &peer{w: w, ended: make(chan struct{})}
	err := kit.Try(func() {
		fd := kit.Get(unix.MemfdCreate("machine", unix.MFD_CLOEXEC))
		p.shared = os.NewFile(uintptr(fd), "shared")
		kit.Check(unix.Ftruncate(fd, int64(os.Getpagesize())))
		p.page = kit.Get(mapWords(fd))
		for i := range p.bells {
			p.bells[i] = os.NewFile(uintptr(kit.Get(unix.Eventfd(0, unix.EFD_CLOEXEC))), "bell")
		}
		p.cmd = exec.Command(kit.Get(os.Executable()), CommandPeer, strconv.Itoa(int(w)), strconv.Itoa(core))
		p.cmd.ExtraFiles = []*os.File{p.shared, p.bells[0], p.bells[1]}
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		kit.Check(p.cmd.Start())
	})
	if err != nil {
		p.close()
		return nil, err
	}
	go func() { // a peer that ends by itself answers no more
		_ = p.cmd.Wait()
		p.page.over.Store(1)
		p.page.answer.Add(1 << 31) // one who is about to sleep on the word sees that it changed
		_ = w.wake(&p.page.answer, int(p.bells[0].Fd()))
		close(p.ended)
	}()
	return p, nil
}

// ask makes one round trip.
func (p *peer) ask() error {
	q := p.page.question.Add(1)
	if err := p.w.wake(&p.page.question, int(p.bells[1].Fd())); err != nil {
		return err
	}
	return p.w.await(p.page, &p.page.answer, func(v uint32) bool { return v == q }, int(p.bells[0].Fd()))
}

// end stops the peer: it is told, and killed if it does not end.
func (p *peer) end() {
	p.page.over.Store(1)
	p.page.question.Add(1)
	_ = p.w.wake(&p.page.question, int(p.bells[1].Fd()))
	select {
	case <-p.ended:
	case <-time.After(giveUp):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
	p.close()
}

func (p *peer) close() {
	if p.page != nil {
		_ = p.page.unmap() // and what fails here is no longer needed
	}
	for _, f := range []*os.File{p.shared, p.bells[0], p.bells[1]} {
		if f != nil {
			f.Close()
		}
	}
}

// CommandPeer is the first argument of this program when it is the peer.
const CommandPeer = "machine-peer"

// Peer is the second process. Its arguments are the way and the core; descriptors 3 to 5 are the shared page and the
// eventfds of the first process and its own.
func Peer(mode, core int) error {
	if mode < int(byYield) || mode > int(byEventfd) {
		return fmt.Errorf("machine: no way %d to hand over", mode)
	}
	w := way(mode)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := bind(core); err != nil {
		return fmt.Errorf("machine: binding to processor %d: %w", core, err)
	}
	page, err := mapWords(3)
	if err != nil {
		return err
	}
	const asker, own = 4, 5
	for answered := uint32(0); ; {
		err := w.await(page, &page.question, func(v uint32) bool { return v != answered }, own)
		if errors.Is(err, errOver) {
			return nil
		}
		if err != nil {
			return err
		}
		answered = page.question.Load()
		page.answer.Store(answered)
		if err := w.wake(&page.answer, asker); err != nil {
			return err
		}
	}
}

// wake wakes the one who waits for a word.
func (w way) wake(word *word, bell int) error {
	switch w {
	case byFutex:
		return futexWake(word)
	case byEventfd:
		_, err := unix.Write(bell, one[:])
		return err
	}
	return nil
}

var one = [8]byte{1}

// errOver ends a wait that will not be answered: there is to be no further question, or the other process has ended.
var errOver = errors.New("machine: the other process answers no more")

// await waits until a word holds what it should.
func (w way) await(p *words, word *word, holds func(uint32) bool, bell int) error {
	for {
		v := word.Load()
		over := p.over.Load() != 0
		switch {
		case holds(v) && !over && w != byEventfd:
			return nil
		case over:
			return errOver
		case w == byFutex:
			if err := futexWait(word, v); err != nil {
				return err
			}
		case w == byEventfd: // each wake-up is a bell, which is read in any case
			var b [8]byte
			if _, err := unix.Read(bell, b[:]); err != nil && err != unix.EINTR {
				return err
			}
			if holds(word.Load()) && p.over.Load() == 0 {
				return nil
			}
		default:
			unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
	}
}
