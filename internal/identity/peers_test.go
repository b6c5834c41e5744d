package identity

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"multiedge/internal/secure"
)

func newPeer(name string) secure.Peer {
	return secure.Peer{Name: name, Key: secure.NewPrivateKey().Public()}
}

func TestPeersAreEdited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etc", "peers")
	if peers, err := ReadPeers(path); err != nil || len(peers) != 0 {
		t.Fatalf("no file: %v %v", peers, err)
	}
	a, b, c := newPeer("a"), newPeer("b"), newPeer("c")
	for _, p := range []secure.Peer{a, b} {
		if changed, err := AddPeer(path, p); err != nil || !changed {
			t.Fatal(changed, err)
		}
	}
	if mode(t, path) != 0o644 {
		t.Errorf("mode %o", mode(t, path))
	}
	text, err := os.ReadFile(path)
	must(t, err)
	comment := "# rack 1\n\n" + string(text) + c.Key.String() + "\tc   # the new one, without a line end"
	write(t, path, comment, 0o640)
	if changed, err := AddPeer(path, c); err != nil || changed {
		t.Errorf("a peer twice: %v %v", changed, err)
	}
	d := newPeer("d")
	if _, err := AddPeer(path, d); err != nil {
		t.Fatal(err)
	}
	if gone, err := RemovePeer(path, "b"); err != nil || gone != b {
		t.Errorf("%v %v", gone, err)
	}
	if gone, err := RemovePeer(path, a.Key.String()); err != nil || gone != a {
		t.Errorf("%v %v", gone, err)
	}
	want := "# rack 1\n\n" + c.Key.String() + "\tc   # the new one, without a line end\n" + d.Key.String() + " d\n"
	if got, _ := os.ReadFile(path); string(got) != want || mode(t, path) != 0o640 {
		t.Errorf("mode %o, got\n%swant\n%s", mode(t, path), got, want)
	}
	only(t, filepath.Dir(path), "peers", "peers.lock")
}

// Endpoints stand behind the name. Adding a peer again replaces them, or keeps them if it names none.
func TestEndpointsAreEdited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peers")
	a, b := newPeer("a"), newPeer("b")
	for _, step := range []struct {
		peer      secure.Peer
		endpoints string
		changed   bool
		want      string
	}{
		{a, "", true, ""}, {b, "", true, ""}, {a, "10.0.0.1:9470", true, "10.0.0.1:9470"},
		{a, "", false, "10.0.0.1:9470"}, {a, "10.0.0.1:9470", false, "10.0.0.1:9470"},
		{a, "a.example:1,[2001:db8::1]:2", true, "a.example:1,[2001:db8::1]:2"},
	} {
		p := step.peer
		p.Endpoints = step.endpoints
		changed, err := AddPeer(path, p)
		if err != nil || changed != step.changed {
			t.Errorf("%q: %v, %v", step.endpoints, changed, err)
		}
		peers, err := ReadPeers(path)
		must(t, err)
		for _, have := range peers {
			if have.Key == p.Key && have.Endpoints != step.want {
				t.Errorf("after %q: %+v", step.endpoints, have)
			}
		}
	}
	for _, bad := range []string{"10.0.0.1", ":9470", "10.0.0.1:0", "10.0.0.1:70000", "a b:1", "x:1,", "[fe80::1%a0]:1",
		strings.Repeat("x:1,", 16) + "x:1"} {
		p := a
		p.Endpoints = bad
		if _, err := AddPeer(path, p); err == nil || !strings.Contains(err.Error(), "endpoint") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if gone, err := RemovePeer(path, "a"); err != nil || gone.Endpoints == "" {
		t.Errorf("%+v, %v", gone, err)
	}
	if peers, err := ReadPeers(path); err != nil || len(peers) != 1 || peers[0] != b {
		t.Errorf("%+v, %v", peers, err)
	}
	placed := b
	placed.Endpoints = "b.example:1"
	all, err := Merge(Source{Name: "one", Peers: []secure.Peer{b}}, Source{Name: "two", Peers: []secure.Peer{placed}})
	if err != nil || len(all.List()) != 1 || all.List()[0] != placed {
		t.Errorf("%+v, %v", all.List(), err)
	}
}

// What is refused leaves the file as it was.
func TestEditRefusals(t *testing.T) {
	dir := t.TempDir()
	a := newPeer("a")
	path := write(t, filepath.Join(dir, "peers"), a.Key.String()+" a\n", 0o644)
	bad := write(t, filepath.Join(dir, "bad"), "nonsense\n", 0o644)
	open := write(t, filepath.Join(dir, "open"), a.Key.String()+" a\n", 0o666)
	add := func(path string, p secure.Peer) func() error {
		return func() error { _, err := AddPeer(path, p); return err }
	}
	remove := func(path, which string) func() error {
		return func() error { _, err := RemovePeer(path, which); return err }
	}
	for _, tc := range []struct {
		name string
		do   func() error
		want string
	}{
		{"name taken", add(path, newPeer("a")), "edgectl peers remove a"},
		{"key taken", add(path, secure.Peer{Name: "b", Key: a.Key}), "the same key"},
		{"name with a comment", add(path, newPeer("b#c")), "peer name"},
		{"name with a blank", add(path, newPeer("b c")), "peer name"},
		{"no name", add(path, newPeer("")), "peer name"},
		{"remove nobody", remove(path, "b"), "no peer"},
		{"malformed", add(bad, newPeer("b")), "bad:1"},
		{"malformed, remove", remove(bad, "b"), "bad:1"},
		{"anybody may write", add(open, newPeer("b")), "chmod go-w"},
		{"a directory", add(dir, newPeer("b")), "not an ordinary file"},
	} {
		if err := tc.do(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	for file, want := range map[string]string{path: a.Key.String() + " a\n", bad: "nonsense\n", open: a.Key.String() +
		" a\n"} {
		if got, _ := os.ReadFile(file); string(got) != want {
			t.Errorf("%s was changed: %q", file, got)
		}
	}
	only(t, dir, "bad", "bad.lock", "open", "open.lock", "peers", "peers.lock")
	if _, err := ReadPeers(open); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("a file that anybody may write was read: %v", err)
	}
}

func TestEditThroughSymlink(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "real"), "# kept\n", 0o644)
	link := filepath.Join(dir, "peers")
	must(t, os.Symlink("real", link))
	p := newPeer("a")
	if _, err := AddPeer(link, p); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(link); err != nil || to != "real" {
		t.Errorf("the link became %q: %v", to, err)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "real")); string(got) != "# kept\n"+p.Key.String()+" a\n" {
		t.Errorf("%q", got)
	}
}

// Editors at once lose nothing of each other.
func TestEditorsRace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peers")
	const editors = 12
	var wg sync.WaitGroup
	for i := range editors {
		wg.Go(func() {
			if _, err := AddPeer(path, newPeer(fmt.Sprint("p", i))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if peers, err := ReadPeers(path); err != nil || len(peers) != editors {
		t.Errorf("%d peers, %v", len(peers), err)
	}
}

func TestMerge(t *testing.T) {
	a, b := newPeer("a"), newPeer("b")
	file, inline := Source{Name: "peers", Peers: []secure.Peer{a, b}}, Source{Name: "configuration",
		Peers: []secure.Peer{b}}
	p, err := Merge(file, inline)
	if err != nil || len(p.List()) != 2 {
		t.Errorf("%v %v", p.List(), err)
	}
	inline.Peers = []secure.Peer{newPeer("a")}
	if _, err := Merge(file, inline); err == nil || !strings.Contains(err.Error(), "peers and configuration") ||
		!strings.Contains(err.Error(), "two keys") {
		t.Errorf("one name, two keys: %v", err)
	}
}

// A user who may read directory and peers file, and locks both, keeps no editor waiting. The lock file is open to its
// owner alone; one that others could have opened is refused.
func TestOthersDoNotLockOut(t *testing.T) {
	defer func(was int) { lockTries = was }(lockTries)
	lockTries = 5
	path := filepath.Join(t.TempDir(), "peers")
	_, err := AddPeer(path, newPeer("a"))
	must(t, err)
	for _, name := range []string{filepath.Dir(path), path} {
		f, err := os.Open(name)
		must(t, err)
		defer f.Close()
		must(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	}
	_, err = RemovePeer(path, "a")
	must(t, err)
	st, err := os.Stat(path + ".lock")
	must(t, err)
	if st.Mode().Perm() != 0o600 {
		t.Errorf("the lock file has mode %v", st.Mode())
	}
	must(t, os.Chmod(path+".lock", 0o644))
	if _, err = AddPeer(path, newPeer("b")); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("a lock file that others may open: %v", err)
	}
	must(t, os.Remove(path+".lock"))
	own := filepath.Join(t.TempDir(), "own")
	must(t, os.WriteFile(own, nil, 0o600)) // what the link names is ours alone: only the link is wrong
	must(t, os.Symlink(own, path+".lock"))
	if _, err = AddPeer(path, newPeer("b")); err == nil {
		t.Error("a symbolic link is followed")
	}
	if os.Geteuid() == 0 {
		must(t, os.Remove(path+".lock"))
		must(t, os.WriteFile(path+".lock", nil, 0o600))
		must(t, os.Chown(path+".lock", 12345, -1))
		if _, err = AddPeer(path, newPeer("b")); err == nil {
			t.Error("another user's lock file is used")
		}
	}
}

// An editor waits for another one for a while, and then says what is wrong.
func TestEditLockedOut(t *testing.T) {
	defer func(was int) { lockTries = was }(lockTries)
	lockTries = 5
	path := filepath.Join(t.TempDir(), "peers")
	a, b := newPeer("a"), newPeer("b")
	if _, err := AddPeer(path, a); err != nil {
		t.Fatal(err)
	}
	other, err := os.Open(path + ".lock")
	must(t, err)
	defer other.Close()
	must(t, syscall.Flock(int(other.Fd()), syscall.LOCK_EX))
	done := make(chan error, 1)
	go func() {
		_, err := RemovePeer(path, "a")
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "fuser") {
			t.Errorf("locked out: %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("an editor waits for ever")
	}
	lockTries = 500
	time.AfterFunc(30*time.Millisecond, func() { other.Close() })
	if _, err := AddPeer(path, b); err != nil {
		t.Errorf("after a wait: %v", err)
	}
}

// A file that had peers and is empty or gone is refused; one without peers says so by a comment, and so does the editor
// that takes out the last.
func TestPeersFileThatIsEmpty(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peers")
	for _, text := range []string{"", " \n\n"} {
		write(t, path, text, 0o644)
		if _, err := ReadPeersAgain(path); err == nil || !strings.Contains(err.Error(), "edgectl peers remove") {
			t.Errorf("%q: %v", text, err)
		}
		if _, err := ReadPeers(path); err != nil {
			t.Errorf("%q at a start: %v", text, err)
		}
	}
	os.Remove(path)
	if _, err := ReadPeersAgain(path); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("no file: %v", err)
	}
	if _, err := AddPeer(path, newPeer("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := RemovePeer(path, "a"); err != nil {
		t.Fatal(err)
	}
	if peers, err := ReadPeersAgain(path); err != nil || len(peers) != 0 {
		t.Errorf("the last one was removed: %v %v", peers, err)
	}
}

// A file that somebody else owns is refused, for he could authorise himself; root's and our own are read, and those of
// an owner who is named.
func TestPeersFileOfAnotherOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peers")
	must(t, os.WriteFile(path, nil, 0o644))
	if _, err := ReadPeers(path); err != nil {
		t.Fatal(err)
	}
	us := uint32(os.Geteuid())
	if us == 0 { // else it is ours, and only root gives files away
		us = 12345
		if err := os.Chown(path, int(us), -1); err != nil {
			t.Fatal("root of all users, or no root, can run this test: ", err)
		}
		if _, err := ReadPeers(path); err == nil {
			t.Error("another's file was read")
		}
	}
	if _, _, err := readPeers(path, []uint32{us + 1}); err == nil ||
		!strings.Contains(err.Error(), fmt.Sprint("belongs to user ", us)) || !strings.Contains(err.Error(), "chown") {
		t.Errorf("another's file: %v", err)
	}
	if _, err := ReadPeers(path, us); err != nil {
		t.Errorf("the daemon's user's file: %v", err)
	}
	if _, err := ListPeers(path); err != nil {
		t.Errorf("for people: %v", err)
	}
}

// Of two that lock a key file the second is told who has it; when that one lets go, or is killed, it is free.
func TestLockKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if _, _, err := LoadKey(path); err != nil {
		t.Fatal(err)
	}
	first, err := LockKey(path)
	must(t, err)
	if _, err := LockKey(path); err == nil || !strings.Contains(err.Error(), "another daemon") ||
		!strings.Contains(err.Error(), "edgectl key new") {
		t.Errorf("the second: %v", err)
	}
	first.Close()
	again, err := LockKey(path)
	must(t, err)
	again.Close()
}

// Networks are kept as endpoints are, by whoever edits only the other, and in a merge of several sources.
func TestNetworksAreEdited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peers")
	p := newPeer("a")
	p.Endpoints, p.Allow = "10.0.0.1:9470", "10.0.0.0/8"
	_, err := AddPeer(path, p)
	must(t, err)
	again := p
	again.Allow, again.Endpoints = "", "10.0.0.2:9470"
	changed, err := AddPeer(path, again)
	must(t, err)
	again.Allow = p.Allow
	if have, err := ListPeers(path); err != nil || !changed || len(have) != 1 || have[0] != again {
		t.Errorf("changed %v: %+v, %v", changed, have, err)
	}
	again.Endpoints, again.Allow = "", "192.0.2.0/24"
	if _, err := AddPeer(path, again); err == nil {
		t.Error("an endpoint outside the networks is in the file")
	}
	merged, err := Merge(Source{"file", []secure.Peer{{Name: "a", Key: p.Key}}}, Source{"configuration",
		[]secure.Peer{p}})
	if err != nil || merged.List()[0] != p {
		t.Errorf("merged %+v, %v", merged.List(), err)
	}
}
