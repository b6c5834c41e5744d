package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
	"time"

	"multiedge/internal/ipc"
)

// ask sends one request and returns the body of the answer, lists joined from their pages.
func (g *globals) ask(m ipc.Message) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(context.Background(), g.Timeout)
	defer cancel()
	conn, err := ipc.Dial(ctx, g.Socket)
	if err != nil {
		return nil, dialError(g.Socket, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })() // a daemon that does not answer must not hang us
	body, err := conn.Ask(m)
	if refused, ok := err.(*ipc.Error); ok {
		return nil, errors.New(refused.Text)
	}
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("the daemon at %s accepted the connection but did not answer within %v; see its log "+
			"(journalctl -u edged)", g.Socket, g.Timeout)
	}
	return body, err
}

// servedBy returns the user who made the socket, as the kernel reports him.
func (g *globals) servedBy() (uid uint32, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), g.Timeout)
	defer cancel()
	conn, err := ipc.Dial(ctx, g.Socket)
	if err != nil {
		return 0, dialError(g.Socket, err)
	}
	defer conn.Close()
	cred, err := conn.Peer()
	return cred.UID, err
}

// errNoDaemon is wrapped where there is nobody to ask.
var errNoDaemon = errors.New("no daemon runs")

// dialError says why no daemon could be asked and what to do about it.
func dialError(socket string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w at %s; start one (systemctl start edged, or: edged --link INTERFACE), or name its "+
			"socket by --socket", errNoDaemon, socket)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("you may not use %s%s", socket, groupHint(socket))
	}
	return fmt.Errorf("asking the daemon: %w", err)
}

// groupHint names the group that may use a socket.
func groupHint(socket string) string {
	st, err := os.Stat(socket)
	if err != nil {
		return "; ask for membership in the daemon's group, or run as root"
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || st.Mode().Perm()&0o020 == 0 {
		return "; only its owner may: run as root"
	}
	return groupText(sys.Gid)
}

// groupText says how to become one of a group that may use the socket.
func groupText(gid uint32) string {
	if gid == 0 { // nobody should be made a member of that
		return "; it belongs to group root: start edged with --group GROUP (group in edged.toml) and have yourself " +
			"added to that, or run as root"
	}
	name := strconv.FormatUint(uint64(gid), 10)
	if g, err := user.LookupGroupId(name); err == nil {
		name = g.Name
	}
	return fmt.Sprintf("; it belongs to group %q: have yourself added (usermod -aG %s USER, then log in again), or "+
		"run as root", name, name)
}

// fetch asks and decodes; with -j it prints the answer as it came and reports done.
func fetch[T any](g *globals, m ipc.Message) (v T, done bool, err error) {
	body, err := g.ask(m)
	if err != nil {
		return v, false, err
	}
	if g.JSON {
		return v, true, printJSON(g, body)
	}
	v, err = decode[T](body)
	return v, false, err
}

// get asks and decodes.
func get[T any](g *globals, m ipc.Message) (v T, err error) {
	body, err := g.ask(m)
	if err != nil {
		return v, err
	}
	return decode[T](body)
}

func decode[T any](body []byte) (v T, err error) {
	if err := json.Unmarshal(body, &v); err != nil {
		return v, fmt.Errorf("the daemon's answer: %w", err)
	}
	return v, nil
}

func printJSON(g *globals, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(g.out, "%s\n", b)
	return err
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}
