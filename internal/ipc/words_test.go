package ipc

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A8.7: an entry wakes who sleeps on its word, and neither those on other words nor who waits for the doorbell.
func TestWordsWakeTheirSleepers(t *testing.T) {
	r := newRings(t, 8)
	cp, cc := r.CompleteProducer(), r.CompleteConsumer()
	done, note := CQE{Kind: CQComplete}, CQE{Kind: CQNotify}
	type put struct {
		e    *CQE
		word uint8
	}
	for name, c := range map[string]struct {
		put  []put
		doze bool
		bell bool
		want WordSet
	}{
		"a notification":                      {[]put{{&note, 3}}, false, false, 1 << 2},
		"one for the last word":               {[]put{{&note, Words}}, false, false, 1 << (Words - 1)},
		"two for one word":                    {[]put{{&note, 3}, {&note, 3}}, false, false, 1 << 2},
		"of two words":                        {[]put{{&note, 1}, {&done, 2}}, false, false, 3},
		"one for the doorbell":                {[]put{{&note, 0}}, false, true, 0},
		"both":                                {[]put{{&note, 0}, {&note, 1}}, false, true, 1},
		"an operation where all doze":         {[]put{{&done, 1}, {&done, 0}}, true, false, 0},
		"one, and a notification elsewhere":   {[]put{{&done, 1}, {&note, 2}}, true, false, 2},
		"a notification, and an operation":    {[]put{{&note, 1}, {&done, 1}}, true, false, 1},
		"a notification where nobody sleeps":  {[]put{{&note, 7}}, false, false, 0},
		"an operation, and one that rings":    {[]put{{&done, 1}, {&note, 0}}, true, true, 0},
		"an operation where they do not doze": {[]put{{&done, 2}}, false, false, 2},
	} {
		for w := uint8(1); w <= Words; w++ {
			r.threadWord(int(w) - 1).Store(0)
			if w != 7 {
				r.SleepOn(w, c.doze)
			}
		}
		if r.SetClientAsleep(true); c.doze {
			r.SetClientDozing()
		}
		for _, p := range c.put {
			cp.PutFor(p.e, p.word)
		}
		bell := cp.Publish()
		got := cp.Wakes()
		if bell != c.bell || got != c.want || cp.Wakes() != 0 {
			t.Errorf("%s: rings %v, want %v; wakes %#x, want %#x", name, bell, c.bell, got, c.want)
		}
		for w := uint8(1); w <= Words; w++ {
			if want := w != 7 && got>>(w-1)&1 == 0; r.SleepsOn(w) != want {
				t.Errorf("%s: word %d: sleeps %v", name, w, !want)
			}
		}
		if n, err := cc.Drain(make([]CQE, 8)); n != len(c.put) || err != nil {
			t.Fatalf("%s: %d entries, %v", name, n, err)
		}
		cp.Refresh()
	}
}

// A connection is aimed at a word after its entries woke others: who sleeps there is woken without an entry.
func TestStirWithoutAnEntry(t *testing.T) {
	r := newRings(t, 8)
	cp := r.CompleteProducer()
	r.SleepOn(2, true)
	r.SetClientAsleep(true)
	cp.Stir(2)
	if bell := cp.Publish(); bell || cp.Wakes() != 1<<1 {
		t.Error("who sleeps on the word is not woken, or others are")
	}
}

// Wake ends a wait for the futex, as a thread of another process has it.
func TestWakeEndsTheSleep(t *testing.T) {
	l, err := LayoutFor(MinDepth)
	if err != nil {
		t.Fatal(err)
	}
	daemons, fd, err := CreateRings(l)
	if err != nil {
		t.Fatal(err)
	}
	defer daemons.Close()
	client, err := MapRings(fd, l)
	unix.Close(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	client.SleepOn(5, false)
	thread, woken := make(chan int), make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		thread <- unix.Gettid()
		woken <- futexWait(client.threadWord(4), asleep, 10*time.Second)
	}()
	for in := fmt.Sprintf("/proc/self/task/%d/syscall", <-thread); ; runtime.Gosched() {
		if b, err := os.ReadFile(in); err != nil || strings.HasPrefix(string(b), fmt.Sprint(unix.SYS_FUTEX)+" ") {
			break
		}
	}
	cp := daemons.CompleteProducer()
	cp.PutFor(&CQE{Kind: CQNotify}, 5)
	cp.Publish()
	if calls := daemons.Wake(cp.Wakes()); calls != 1 {
		t.Errorf("%d calls, want 1", calls)
	}
	if err := <-woken; err != nil {
		t.Errorf("the thread was not woken: %v", err)
	}
}

// A8.7: a connection that is aimed at the doorbell again may have entries that were for a word where nobody sleeps any
// more: who waits for the doorbell looks.
func TestAimAtTheDoorbellRings(t *testing.T) {
	r := newRings(t, 8)
	cp := r.CompleteProducer()
	r.SetClientAsleep(true)
	cp.PutFor(&CQE{Kind: CQNotify}, 2)
	if cp.Publish() || cp.Wakes() != 0 {
		t.Fatal("an entry for a word wakes somebody else")
	}
	cp.Stir(0)
	if !cp.Publish() {
		t.Error("nobody looks at the entry")
	}
}
