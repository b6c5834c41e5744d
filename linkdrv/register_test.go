package linkdrv

import (
	"net"
	"slices"
	"strings"
	"testing"
)

// heap is a driver of another file: what is sent can be received again.
type heap struct {
	info   Info
	frames [][]byte
	closed bool
}

func (h *heap) Send(frames []TxFrame) (int, error) {
	for _, f := range frames {
		h.frames = append(h.frames, f.AppendTo(nil))
	}
	return len(frames), nil
}

func (h *heap) Recv(dst [][]byte) (int, error) {
	n := copy(dst, h.frames)
	h.frames = h.frames[n:]
	return n, nil
}

func (h *heap) FD() int               { return -1 }
func (h *heap) Stats() (Stats, error) { return Stats{}, nil }
func (h *heap) Info() Info            { return h.info }
func (h *heap) Close() error          { h.closed = true; return nil }

// A driver takes one file: Options name it, for one shard and for several.
func TestAnotherDriver(t *testing.T) {
	namespace(t)
	veth(t, 1500)
	Register("heap", func(ifi *net.Interface, n int, o Options) (all []Driver, err error) {
		for range n {
			all = append(all, &heap{info: Info{Name: ifi.Name, MAC: ifi.HardwareAddr, MTU: ifi.MTU, Kind: o.Kind}})
		}
		return all, nil
	})
	defer delete(openers, "heap")
	if kinds := Kinds(); !slices.Equal(kinds, []string{KindAlone, "heap", KindIP, KindMmsg, KindRing, KindUDP}) {
		t.Errorf("kinds: %v", kinds)
	}
	shards, err := OpenShards("a0", 3, Options{Kind: "heap"})
	must(t, err)
	d, err := Open("a0", Options{Kind: "heap"})
	must(t, err)
	if len(shards) != 3 || d.Info().Kind != "heap" || d.Info().MTU != 1500 {
		t.Fatalf("%d drivers, %+v", len(shards), d.Info())
	}
	must2 := func(n int, err error) {
		if must(t, err); n != 1 {
			t.Errorf("%d frames", n)
		}
	}
	must2(d.Send([]TxFrame{{Head: []byte("head"), Bulk: []byte("payload")}}))
	dst := make([][]byte, 4)
	must2(d.Recv(dst))
	if string(dst[0]) != "headpayload" {
		t.Errorf("received %q", dst[0])
	}
	if _, err := Open("a0", Options{Kind: "heep"}); err == nil || !strings.Contains(err.Error(), ` heap,`) {
		t.Errorf("unknown kind: %v", err)
	}
	for _, d := range append(shards, d) {
		must(t, d.Close())
	}
}
