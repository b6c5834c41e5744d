package daemon

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"testing"

	"multiedge/internal/config"
	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
	"multiedge/regmem"
)

func TestWriteReadNotify(t *testing.T) { inBothForms(t, testWriteReadNotify) }

func testWriteReadNotify(t *testing.T, security string) {
	for _, links := range []int{1, 3} {
		a, b := nodesIn(t, security, links, nil)
		server, client := attach(t, a, 64), attach(t, b, 64)
		atServer, atClient := connect(t, server, client, "a", "mem")
		const size = 1 << 20
		region, target := server.register(size)
		exp := server.must(&ipc.Message{Kind: ipc.KindExport, Conn: atServer, Region: region, Size: size,
			Perm: uint8(regmem.RemoteRead | regmem.RemoteWrite), Name: "buf"})
		ad := client.event(ipc.KindAdvert)
		if ad.Name != "buf" || ad.Key != exp.Key || ad.Size != size || ad.Conn != atClient {
			t.Fatalf("advert %+v, export %+v", ad, exp)
		}
		local, source := client.register(2 * size)
		rand.Read(source[:size])
		client.post(ipc.SQE{Op: ipc.OpWrite, Flags: ipc.FlagNotify, Conn: atClient, Imm: 7, Token: 1 << 60, Key: ad.Key,
			Region: local, Len: size})
		if e := client.completion(); e.Status != ipc.StatusOK || e.Token != 1<<60 || e.Conn != atClient {
			t.Fatalf("write: %+v", e)
		}
		if e := server.entry(); e.Kind != ipc.CQNotify || e.Imm != 7 || e.Len != size || e.Conn != atServer ||
			e.Token != exp.Key || e.Off != 0 {
			t.Fatalf("notification: %+v", e)
		}
		if !bytes.Equal(target[:size], source[:size]) {
			t.Fatal("the write did not arrive as sent")
		}
		client.post(ipc.SQE{Op: ipc.OpRead, Conn: atClient, Token: 2, Key: ad.Key, Region: local, LocalOff: size,
			Len: size})
		if e := client.completion(); e.Status != ipc.StatusOK || e.Token != 2 {
			t.Fatalf("read: %+v", e)
		}
		if !bytes.Equal(source[size:], source[:size]) {
			t.Fatal("the read did not return what was written")
		}
		inline := ipc.SQE{Op: ipc.OpWrite, InlineLen: 5, Conn: atClient, Token: 3, Key: ad.Key, RemoteOff: size - 5}
		copy(inline.Inline[:], "hello")
		client.post(inline)
		if e := client.completion(); e.Status != ipc.StatusOK || string(target[size-5:]) != "hello" {
			t.Fatalf("inline write: %+v, %q", e, target[size-5:])
		}
		client.must(&ipc.Message{Kind: ipc.KindClose, Conn: atClient})
		if m := server.event(ipc.KindClosed); m.Conn != atServer || m.Code != ipc.StatusClosed.Code() {
			t.Fatalf("closed: %+v", m)
		}
		client.fails(&ipc.Message{Kind: ipc.KindClose, Conn: atClient}, ipc.CodeNoConn)
	}
}

// Many operations of several connections in flight at once, all of them completed exactly once.
func TestManyOperations(t *testing.T) { inBothForms(t, testManyOperations) }

func testManyOperations(t *testing.T, security string) {
	a, b := nodesIn(t, security, 2, nil)
	server, client := attach(t, a, 64), attach(t, b, 256)
	const conns, rounds, size = 4, 500, 3000
	region, _ := server.register(conns * size)
	local, _ := client.register(size)
	var keys [conns]uint64
	var ids [conns]uint32
	server.must(&ipc.Message{Kind: ipc.KindListen, Service: "mem"})
	for i := range conns {
		atServer, atClient := dialAccept(t, server, client, "a", "mem")
		server.must(&ipc.Message{Kind: ipc.KindExport, Conn: atServer, Region: region, Off: uint64(i * size),
			Size: size, Perm: uint8(regmem.RemoteWrite), Name: "x"})
		keys[i], ids[i] = client.event(ipc.KindAdvert).Key, atClient
	}
	seen := make([]bool, rounds*conns)
	inFlight := 0
	take := func() {
		e := client.completion()
		if e.Status != ipc.StatusOK || seen[e.Token] {
			t.Fatalf("%+v (seen before: %t)", e, seen[e.Token])
		}
		seen[e.Token] = true
		inFlight--
	}
	for i := range seen {
		for inFlight >= 256 {
			take()
		}
		k := i % conns
		client.post(ipc.SQE{Op: ipc.OpWrite, Conn: ids[k], Token: uint64(i), Key: keys[k], Region: local, Len: size})
		inFlight++
	}
	for inFlight > 0 {
		take()
	}
}

// Driving by the waiting goroutine completes operations without the shard's thread.
func TestDrive(t *testing.T) { inBothForms(t, testDrive) }

func testDrive(t *testing.T, security string) {
	a, b := nodesIn(t, security, 1, nil)
	server, client := attach(t, a, 64), attach(t, b, 64)
	atServer, atClient := connect(t, server, client, "a", "mem")
	region, _ := server.register(4096)
	key := exportTo(server, client, atServer, region, 4096, regmem.RemoteWrite)
	var done [1]ipc.CQE
	post := func() {
		client.post(ipc.SQE{Op: ipc.OpWrite, InlineLen: 8, Conn: atClient, Token: 1, Key: key})
	}
	drive := func() {
		for range 1 << 20 {
			b.Drive()
			a.Drive()
			if n, err := client.cq.Drain(done[:]); err != nil {
				t.Fatal(err)
			} else if n == 1 {
				return
			}
		}
		t.Fatal("nothing completed")
	}
	for range 200 {
		post()
		drive()
	}
}

func TestStatusAndPing(t *testing.T) { inBothForms(t, testStatusAndPing) }

func testStatusAndPing(t *testing.T, security string) {
	a, b := nodesIn(t, security, 2, nil)
	server, client := attach(t, a, 64), attach(t, b, 64)
	connect(t, server, client, "a", "mem")
	client.register(8192)
	r := client.must(&ipc.Message{Kind: ipc.KindStatus})
	var st inspect.Status
	must(t, json.Unmarshal(r.Body, &st))
	if st.Schema != inspect.StatusSchema || st.Name != "b" || st.Clients != 1 || st.Connections != 1 ||
		st.Regions != 1 ||
		st.PinnedBytes != 8192 || st.LinksUp != 2 ||
		st.Counters["frames_sent"] == 0 ||
		st.CPUUserSeconds+st.CPUSystemSeconds <= 0 ||
		st.Epoch == "" {
		t.Fatalf("status: %s", r.Body)
	}
	for _, what := range whats[1:] {
		r := client.must(&ipc.Message{Kind: ipc.KindStatus, What: what})
		var list []map[string]any
		nobody := what == "authorised" && security == config.Plaintext
		if err := json.Unmarshal(r.Body, &list); err != nil || (len(list) == 0) != nobody {
			t.Errorf("%s: %v: %s", what, err, r.Body)
		}
	}
	client.fails(&ipc.Message{Kind: ipc.KindStatus, What: "weather"}, ipc.CodeInvalid)
	var pr PingReport
	r = client.must(&ipc.Message{Kind: ipc.KindPing, Peer: "a", Count: 3})
	if err := json.Unmarshal(r.Body, &pr); err != nil || len(pr.Results) != 3 || pr.Results[2].Status != "ok" ||
		pr.Results[2].Nanos <= 0 {
		t.Fatalf("ping: %v: %s", err, r.Body)
	}
	var f []inspect.Finding
	r = client.must(&ipc.Message{Kind: ipc.KindDoctor})
	if err := json.Unmarshal(r.Body, &f); err != nil || len(f) == 0 {
		t.Fatalf("doctor: %v: %s", err, r.Body)
	}
	client.must(&ipc.Message{Kind: ipc.KindVersion})
	if st.Security != security || (st.PublicKey != "") != (security == config.Encrypted) ||
		(st.Checksum == "") != (security == config.Encrypted) {
		t.Errorf("security %q, key %q, checksum %q", st.Security, st.PublicKey, st.Checksum)
	}
	var peers []inspect.PeerStatus
	r = client.must(&ipc.Message{Kind: ipc.KindStatus, What: "peer"})
	if err := json.Unmarshal(r.Body, &peers); err != nil || len(peers) != 1 || peers[0].Security != security ||
		peers[0].Key != a.Daemon().PublicKey() {
		t.Errorf("peers: %v: %s", err, r.Body)
	}
}

func TestRefusals(t *testing.T) { inBothForms(t, testRefusals) }

func testRefusals(t *testing.T, security string) {
	a, b := nodesIn(t, security, 1, func(c *config.Config) {
		if security == config.Plaintext { // it dials in vain
			c.DialTimeout = 1e8
		}
	})
	server, client := attach(t, a, 64), attach(t, b, 64)
	if security == config.Plaintext {
		client.fails(&ipc.Message{Kind: ipc.KindDial, Peer: "nobody", Service: "x"}, ipc.StatusPeerUnknown.Code())
	}
	client.fails(&ipc.Message{Kind: ipc.KindDial, Peer: "a", Service: "x"}, ipc.StatusNoService.Code())
	client.fails(&ipc.Message{Kind: ipc.KindDial, Peer: "a", Service: "x",
		Asked: ipc.Asked{Scheduler: "fifo"}}, ipc.CodeInvalid)
	client.fails(&ipc.Message{Kind: 9999}, ipc.CodeUnknownKind)
	client.fails(ipc.Hello(0), ipc.CodeInvalid)
	server.must(&ipc.Message{Kind: ipc.KindListen, Service: "x"})
	other := attach(t, a, 64)
	other.fails(&ipc.Message{Kind: ipc.KindListen, Service: "x"}, ipc.CodeExists)
	other.fails(&ipc.Message{Kind: ipc.KindUnlisten, Service: "x"}, ipc.CodeInvalid)
	id := client.send(&ipc.Message{Kind: ipc.KindDial, Peer: "a", Service: "x", Timeout: 5e9})
	in := server.event(ipc.KindIncoming)
	other.fails(&ipc.Message{Kind: ipc.KindAccept, Conn: in.Conn}, ipc.CodeNoConn) // another client's
	server.must(&ipc.Message{Kind: ipc.KindRefuse, Conn: in.Conn, Text: "not today"})
	if _, err := client.reply(id); err == nil || err.Error() != "refused: not today" {
		t.Fatalf("refused dial: %v", err)
	}
	server.must(&ipc.Message{Kind: ipc.KindUnlisten, Service: "x"})
	client.fails(&ipc.Message{Kind: ipc.KindDial, Peer: "a", Service: "x"}, ipc.StatusNoService.Code())
	client.must(&ipc.Message{Kind: ipc.KindDrain})
	client.fails(&ipc.Message{Kind: ipc.KindDial, Peer: "a", Service: "x"}, ipc.CodeDraining)
	client.fails(&ipc.Message{Kind: ipc.KindListen, Service: "y"}, ipc.CodeDraining)
}
