package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
	"multiedge/internal/trace"
)

type traceCmd struct {
	Link     string        `arg:"" optional:"" predictor:"link" help:"Only this link (default: all)."`
	Write    string        `short:"w" placeholder:"FILE" predictor:"file" help:"Write a pcapng file for Wireshark; - is standard output."`
	Count    uint64        `short:"c" placeholder:"N" help:"End after this number of frames."`
	Duration time.Duration `short:"D" placeholder:"TIME" help:"End after this time."`
	Lookups  bool          `help:"Record the memory that operations use, instead of frames, for edgestudy utlb and dhl --trace; -w names the file, which is compressed unless the name ends in .txt."`
	Snap     int           `default:"256" placeholder:"BYTES" help:"Bytes to keep of each frame; 0: all (default: ${default})."`
}

// Help is what edgectl trace --help says beside the options.
func (*traceCmd) Help() string {
	return `Shows the frames that the daemon sends and receives, also frames that a packet socket shows to no other program on this host. Of encrypted traffic only the clear headers can
be read. Ctrl-C ends it. Only root and the user that runs the daemon may trace: frames in plaintext contain other users' data.

	edgectl trace eth0 -c 20
	edgectl trace -w out.pcapng -D 10s

With --lookups the daemon reports the memory that operations use on this host, at their sources and destinations: process, operation, place, length and time.
It ends after -c lookups, or 1048576.

	edgectl trace --lookups -w out.memtrace -D 10s
	edgestudy utlb --trace out.memtrace -o out/`
}

func (c *traceCmd) Run(g *globals) (err error) {
	if c.Snap < 0 || c.Snap > trace.MaxFrame {
		return fmt.Errorf("--snap %d: give bytes, at most %d, or 0 for whole frames", c.Snap, trace.MaxFrame)
	}
	if c.Duration < 0 {
		return fmt.Errorf("--duration %v: give a time, such as 10s", c.Duration)
	}
	if c.Write != "" && g.JSON {
		return errors.New("--write makes a file and --json lines: choose one")
	}
	if err := c.checkLookups(g); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	defer stop()
	// a second signal ends what the first one does not, such as an output that nobody reads
	context.AfterFunc(ctx, stop)
	s, err := c.start(ctx, g)
	if err != nil {
		return err
	}
	defer s.close()
	if c.Duration > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, c.Duration)
		defer cancel()
	}
	defer context.AfterFunc(ctx, s.close)()
	if c.Lookups {
		return c.runLookups(ctx, s, g.errs)
	}
	show, err := c.shower(g, s)
	if err != nil {
		return err
	}
	err = s.each(c.Count, show)
	if ctx.Err() != nil {
		err = nil // it was told to end
	}
	if cerr := show.close(); err == nil {
		err = cerr
	}
	if err == nil && (c.Write != "" || s.lost > 0) {
		fmt.Fprintf(g.errs, "%d frames, and %d between them that found no room\n", s.frames, s.lost)
	}
	return err
}

// checkLookups refuses what --lookups does not go with.
func (c *traceCmd) checkLookups(g *globals) error {
	switch {
	case !c.Lookups:
		return nil
	case c.Write == "" || c.Write == "-":
		return errors.New("--lookups needs a file to write to: add -w FILE")
	case c.Link != "":
		return fmt.Errorf("--lookups are of operations, not of a link: leave out %q", c.Link)
	}
	return nil
}

// endings are the signals that end a command in order. Under nohup a terminal's end is none.
func endings() []os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return []os.Signal{os.Interrupt, syscall.SIGTERM}
	}
	return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
}

// tracing is a trace under way.
type tracing struct {
	conn   *ipc.Conn
	pipe   *os.File
	origin time.Time // of the daemon's clock
	links  map[uint8]trace.Link
	list   []trace.Link
	frames uint64
	lost   uint64
}

// start asks the daemon.
func (c *traceCmd) start(ctx context.Context, g *globals) (*tracing, error) {
	ctx, cancel := context.WithTimeout(ctx, g.Timeout)
	defer cancel()
	conn, err := ipc.Dial(ctx, g.Socket)
	if err != nil {
		return nil, dialError(g.Socket, err)
	}
	keep := context.AfterFunc(ctx, func() { conn.Close() })
	s, err := c.request(conn)
	if !keep() && err == nil {
		err = fmt.Errorf("the daemon at %s did not answer within %v; see its log (journalctl -u edged)", g.Socket,
			g.Timeout)
	}
	if err != nil {
		conn.Close()
	}
	return s, err
}

func (c *traceCmd) request(conn *ipc.Conn) (*tracing, error) {
	ask := &ipc.Message{ID: 1, Kind: ipc.KindTrace, Name: c.Link, Size: uint64(c.Snap)}
	if c.Lookups {
		ask.What = "lookups"
	}
	if err := conn.Send(ask); err != nil {
		return nil, fmt.Errorf("sending to the daemon: %w", err)
	}
	reply, fds, err := conn.RecvFDs()
	switch {
	case err != nil:
		return nil, fmt.Errorf("the daemon ended the connection: %w", err)
	case reply.Error != nil:
		ipc.CloseFDs(fds)
		return nil, errors.New(reply.Error.Text)
	case len(fds) != 1:
		ipc.CloseFDs(fds)
		return nil, errors.New("the daemon sent no pipe to read from; edgectl and edged must be of one version")
	}
	s := &tracing{conn: conn, pipe: os.NewFile(uintptr(fds[0]), "trace"), links: map[uint8]trace.Link{}}
	var start trace.Start
	if err := json.Unmarshal(reply.Body, &start); err != nil {
		s.close()
		return nil, fmt.Errorf("the daemon's answer: %w", err)
	}
	s.origin = time.Now().Add(-time.Duration(start.Now))
	s.list = start.Links
	for _, l := range start.Links {
		s.links[uint8(l.Number)] = l
	}
	return s, nil
}

func (s *tracing) close() {
	s.conn.Close()
	s.pipe.Close()
}

// each shows frame after frame, most at most unless it is 0, until the daemon ends it.
func (s *tracing) each(most uint64, show shower) error {
	in := trace.NewReader(s.pipe)
	var r trace.Record
	for most == 0 || s.frames < most {
		switch err := in.Next(&r); {
		case err == io.EOF:
			return errors.New("the daemon ended the trace")
		case err != nil:
			return err
		}
		s.frames++
		s.lost += uint64(r.Lost)
		err := show.frame(s.origin.Add(time.Duration(r.Time)), &r)
		if err == nil && in.Idle() {
			err = show.flush()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// shower shows frames to somebody.
type shower struct {
	frame func(at time.Time, r *trace.Record) error
	flush func() error // for whoever reads along
	close func() error
}

func nothing() error { return nil }

func (c *traceCmd) shower(g *globals, s *tracing) (shower, error) {
	switch {
	case c.Write == "-":
		return s.capture(g.out, c.Snap, nothing)
	case c.Write != "":
		f, err := private(c.Write)
		if err != nil {
			return shower{}, err
		}
		return s.capture(f, c.Snap, f.Close)
	case g.JSON:
		return s.jsonLines(g.out), nil
	}
	return s.lines(g.out), nil
}

// private makes a file: what it holds is nobody else's business.
func private(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
		if err = f.Chmod(0o600); err != nil { // one that was there before
			f.Close()
			return nil, err
		}
	}
	return f, nil
}

func (s *tracing) lines(w io.Writer) shower {
	return shower{func(at time.Time, r *trace.Record) error {
		text := trace.Describe(r.Data, r.Len).Text
		_, err := fmt.Fprintf(w, "%s %s %-3s %5d  %s\n", at.Format("15:04:05.000000"), s.links[r.Link].Name,
			yesNo(r.Sent, "out", "in"), r.Len, text)
		return err
	}, nothing, nothing}
}

// traceLine is what trace prints with -j, one a line.
type traceLine struct {
	Schema    int       `json:"schema"`
	Time      time.Time `json:"time"`
	Link      string    `json:"link"`
	Direction string    `json:"direction"` // "in" or "out"
	Length    int       `json:"length"`    // of the frame, in bytes
	Lost      uint32    `json:"lost"`      // frames before this one that found no room
	trace.Summary
}

func (s *tracing) jsonLines(w io.Writer) shower {
	out := json.NewEncoder(w)
	return shower{func(at time.Time, r *trace.Record) error {
		return out.Encode(traceLine{inspect.StatusSchema, at, s.links[r.Link].Name, yesNo(r.Sent, "out", "in"), r.Len,
			r.Lost, trace.Describe(r.Data, r.Len)})
	}, nothing, nothing}
}

// maxComment bounds a description in a file, in bytes: the format has room for 64 KiB.
const maxComment = 8 << 10

// capture writes a pcapng file with an interface for each link, its frames with their direction and, as a comment, what
// is in them.
func (s *tracing) capture(w io.Writer, snap int, closeFile func() error) (shower, error) {
	var out *pcapgo.NgWriter
	numbers := map[uint8]int{}
	for _, l := range s.list {
		in := pcapgo.NgInterface{
			Name: l.Name, Description: fmt.Sprintf("edge link %d, %s, MTU %d", l.Number, l.MAC, l.MTU), OS: "linux",
			LinkType:   layers.LinkTypeEthernet,
			SnapLength: uint32(snap), TimestampResolution: 9,
		}
		id, err := 0, error(nil)
		if out == nil {
			about := pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{OS: "linux", Application: "edgectl " +
				version}}
			out, err = pcapgo.NewNgWriterInterface(w, in, about)
		} else {
			id, err = out.AddInterface(in)
		}
		if err != nil {
			return shower{}, errors.Join(err, closeFile())
		}
		numbers[uint8(l.Number)] = id
	}
	way := map[bool]*pcapgo.NgEpbFlags{true: {Direction: pcapgo.NgEpbFlagDirectionOutbound},
		false: {Direction: pcapgo.NgEpbFlagDirectionInbound}}
	return shower{
		func(at time.Time, r *trace.Record) error {
			text := trace.Describe(r.Data, r.Len).Text
			about := pcapgo.NgPacketOptions{Comments: []string{strings.ToValidUTF8(text[:min(len(text), maxComment)],
				"")}, Flags: way[r.Sent]}
			if lost := uint64(r.Lost); lost > 0 {
				about.DropCount = &lost
			}
			ci := gopacket.CaptureInfo{Timestamp: at, CaptureLength: len(r.Data), Length: r.Len,
				InterfaceIndex: numbers[r.Link]}
			return out.WritePacketWithOptions(ci, r.Data, about)
		},
		out.Flush,
		func() error { return errors.Join(out.Flush(), closeFile()) },
	}, nil
}
